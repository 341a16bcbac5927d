#!/usr/bin/env bash
# Runs a command as one line with its time. What it prints is shown if it fails, or with V=1.
# usage: dev/step.sh 'what it does' command...
set -euo pipefail
what=$1
shift
began=$EPOCHREALTIME
if [ -n "${V:-}" ]; then
	"$@"
elif ! said=$("$@" 2>&1); then
	printf '%s: failed\n%s\n' "$what" "$said" >&2
	exit 1
fi
LC_ALL=C awk -v began="$began" -v ended="$EPOCHREALTIME" -v what="$what" 'BEGIN { printf "%6.1f s  %s\n", ended - began, what }'
