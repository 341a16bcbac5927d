#!/usr/bin/env bash
# Runs all tests, except those that make test-browser, test-large, test-cluster and e2e-node run.
#
# usage: tools/test.sh
#
# Most tests wait for servers and use little processor time. Four chains of suites therefore run at the same
# time, each suite with servers of its own. The script needs bash, coreutils, grep and Go.
set -uo pipefail
cd "$(dirname "$0")/.."

# These integration tests start further control planes or make their servers slow.
disturbing='FleetRollsOut|ConnectionToTheFleet|ClusterWideLimit|LateCache|OlderThanAnOutage|ClaimedAgain|MissingWorkers|CertificatesRotate|ShareATemporal'
# This test runs before all others: an API server of a busy machine takes longer to replace a definition than a
# webhook may wait.
alone='AnUpgradeRejectsNoPod'

# Background processes of a script ignore an interrupt, so the script ends its process group.
trap 'trap - INT; kill 0' INT

# The tests use their own Temporal servers, and not the Temporal configuration of the user.
unset "${!TEMPORAL_@}"
export TEMPORAL_CONFIG_FILE=/dev/null

code=0
suites() { go test -timeout 60m -p 1 "$@" || code=1; }

# half is every second one of the other integration tests.
half=$(grep -ohE '^func Test[A-Za-z0-9_]+\(t ' test/integration/*_test.go | cut -d'(' -f1 | cut -d' ' -f2 |
	grep -vE "$disturbing" | split -n r/1/2 | paste -sd'|')
[ -n "$half" ] || { echo "$0: found no integration tests" >&2; exit 1; }

chain1() {
	suites ./test/integration -run "^($half)\$"
	suites ./dev/... ./test/conformance ./test/metrics ./test/switchover
}

chain2() {
	suites ./test/integration -skip "^($half)\$|$disturbing"
	suites ./test/documents
}

chain3() {
	suites ./test/integration -run "$disturbing"
	suites ./test/cli
}

chain4() {
	suites ./test/manifests -skip "$alone" -parallel 3
	suites $(go list ./... | grep -vE '/(dev/.*|test/(cli|conformance|documents|integration|manifests|metrics|switchover))$')
}

go test -c -o /dev/null ./test/integration || exit 1
suites ./test/manifests -run "$alone"
chains=()
for chain in chain1 chain2 chain3 chain4; do
	($chain && exit $code) &
	chains+=($!)
done
for chain in "${chains[@]}"; do
	wait "$chain" || code=1
done
exit $code
