#!/usr/bin/env bash
# Puts what tests, linters and the local stack run into bin/: only what is
# missing or of another version, so that a finished bin/ needs no network.
# usage: [TOOLS=auto|download|build] tools/build.sh [name...]     (default: all of them but the optional ones)
# The list, and where each comes from, is in dev/tools/programs.go.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go run ./dev/tools "$@"
