package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func simulate(t *testing.T, o options) figures {
	t.Helper()
	s, err := newSimulation(o)
	require.NoError(t, err)
	found, err := s.run()
	require.NoError(t, err)
	// What is measured differs.
	found.Planning, found.Longest, found.PlannerHeap = 0, 0, 0
	return found
}

func TestASimulationKeepsTheWindowAndCanBeRepeated(t *testing.T) {
	o := options{pods: 600, window: "10%", seed: 1, qps: 200, burst: 400, planCost: time.Microsecond}
	found := simulate(t, o)
	assert.Equal(t, 600, found.Upgraded)
	assert.Equal(t, 60, found.MostInFlight)
	assert.GreaterOrEqual(t, found.Virtual, found.Ideal*9/10, "nobody is faster than the window allows")
	assert.Equal(t, found, simulate(t, o))

	slow := o
	slow.qps, slow.burst = 5, 5
	assert.GreaterOrEqual(t, simulate(t, slow).Virtual, 595*time.Second/5, "the API server is asked no faster than is allowed")
	o.batches = 2
	assert.Equal(t, 2, simulate(t, o).Batches)
}
