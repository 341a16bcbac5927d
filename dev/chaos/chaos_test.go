package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This test is a short run with one seed. make chaos starts longer runs.
func TestSpecHoldsUnderFaults(t *testing.T) {
	t.Chdir("../..") // The programs are in bin/ of the repository.
	o := options{seed: 114, faults: 40, pods: 80, gap: 450 * time.Millisecond, rules: rules(setNames(), deploymentNames())}
	drawn := map[Kind]int{}
	for _, f := range Plan(o.seed, o.faults, o.gap, o.rules) {
		drawn[f.Kind]++
	}
	for _, r := range o.rules {
		assert.Positive(t, drawn[r.kind], "%s", r.kind)
	}
	assert.GreaterOrEqual(t, drawn[Image], 4, "rollouts to disturb")
	require.NoError(t, run(t.Context(), o, t.Output()))
}
