package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
