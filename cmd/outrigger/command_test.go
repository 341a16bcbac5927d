package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A worker check every 0 s would be a query every second, and not the end of the checks.
func TestTheIntervalOfWorkerChecksIsPositive(t *testing.T) {
	for _, interval := range []string{"0", "-1s"} {
		_, err := runCommand(t, "operator", "--worker-check-interval="+interval)
		require.EqualError(t, err, "--worker-check-interval must be positive", interval)
	}
}

func TestFlagsOfTheFleetNeedAFleet(t *testing.T) {
	for _, role := range []string{"worker", "ui"} {
		for _, flag := range []string{"address=hub:7233", "namespace=fleet", "tls=false", "api-key-file=/absent", "payload-key-dir=/absent"} {
			_, err := runCommand(t, role, "--fleet-temporal-"+flag)
			require.EqualError(t, err, "the flags --fleet-temporal-… need --fleet", role+" "+flag)
		}
	}
}

func TestInvalidFlagsOfAWorkerAreRejected(t *testing.T) {
	for want, args := range map[string][]string{
		"--max-unavailable-pods must not be negative":                            {"--max-unavailable-pods=-1"},
		"--max-concurrent-selects and --max-concurrent-patches must be positive": {"--max-concurrent-looks=0"},
		"--max-unavailable-pods and --deployment-name exclude each other: one":   {"--max-unavailable-pods=1", "--deployment-name=outrigger", "--build-id=one"},
	} {
		root := newCommand()
		root.SetArgs(append([]string{"worker"}, args...))
		require.ErrorContains(t, root.ExecuteContext(t.Context()), want)
	}
}
