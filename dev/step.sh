#!/usr/bin/env bash
# This script runs a command and prints one line with the duration. The output of the command is
# shown if the command fails, or with V=1.
# usage: dev/step.sh 'what it does' command...
set -euo pipefail
what=$1
shift
# began is in microseconds. The separator between seconds and fraction depends on the locale, so the separator
# is removed.
began=${EPOCHREALTIME//[!0-9]/}
if [ -n "${V:-}" ]; then
	"$@"
elif ! said=$("$@" 2>&1); then
	printf '%s: failed\n%s\n' "$what" "$said" >&2
	exit 1
fi
tenths=$(((${EPOCHREALTIME//[!0-9]/} - began + 50000) / 100000))
printf '%4d.%d s  %s\n' $((tenths / 10)) $((tenths % 10)) "$what"
