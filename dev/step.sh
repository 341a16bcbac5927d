#!/usr/bin/env bash
# Runs a command as one line with its time. What it prints is shown if it fails, or with V=1.
# usage: dev/step.sh 'what it does' command...
set -euo pipefail
what=$1
shift
# Microseconds: the locale decides about the sign between seconds and their fraction.
began=${EPOCHREALTIME//[!0-9]/}
if [ -n "${V:-}" ]; then
	"$@"
elif ! said=$("$@" 2>&1); then
	printf '%s: failed\n%s\n' "$what" "$said" >&2
	exit 1
fi
tenths=$(((${EPOCHREALTIME//[!0-9]/} - began + 50000) / 100000))
printf '%4d.%d s  %s\n' $((tenths / 10)) $((tenths % 10)) "$what"
