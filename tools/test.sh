#!/usr/bin/env bash
# This script runs all tests, except the tests of make test-browser, test-large, test-cluster and e2e-node.
#
# usage: tools/test.sh
#
# Many tests wait for servers. Therefore, three chains of suites run in parallel. Each suite starts its own servers.
# With more chains, servers wait for the CPU for longer than the API server and the webhook wait for a response. The
# script needs bash, coreutils, grep and Go.
set -uo pipefail
cd "$(dirname "$0")/.."

# These integration tests start additional control planes, or slow down or stop the servers of their suite.
disturbing='FleetRollsOut|ConnectionToTheFleet|ClusterWideLimit|LateCache|OlderThanAnOutage|ClaimedAgain|MissingWorkers|CertificatesRotate|ShareATemporal'
# These tests require that the API server rejects no pod, and run before all other tests. On a busy machine, the API
# server needs longer to replace a definition than the API server waits for a webhook.
alone='RejectsNoPod|NoPodIsRejected|AndUninstalls'

# Background processes of a script ignore SIGINT, and do not receive the SIGTERM of the script, so the script kills its
# process group.
trap 'trap - INT TERM; kill 0' INT TERM

# The tests use their own Temporal servers, and not the Temporal configuration of the user.
unset "${!TEMPORAL_@}"
export TEMPORAL_CONFIG_FILE=/dev/null

code=0
suites() { go test -timeout 60m -p 1 "$@" || code=1; }

# half is a pattern for every second integration test that is not in disturbing.
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
	suites ./test/cli
}

chain3() {
	suites ./test/integration -run "$disturbing"
	suites ./test/manifests -skip "$alone" -parallel 2
	suites $(go list ./... | grep -vE '/(dev/.*|test/(cli|conformance|documents|integration|manifests|metrics|switchover))$')
}

go test -c -o /dev/null ./test/integration || exit 1
suites ./test/manifests -run "$alone" -parallel 2
chains=()
for chain in chain1 chain2 chain3; do
	($chain && exit $code) &
	chains+=($!)
done
for chain in "${chains[@]}"; do
	wait "$chain" || code=1
done
exit $code
