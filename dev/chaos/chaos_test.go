package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A short run with one seed; make chaos has longer ones.
func TestSpecHoldsUnderFaults(t *testing.T) {
	o := options{seed: 5, faults: 25, pods: 80, gap: 450 * time.Millisecond}
	require.NoError(t, run(t.Context(), o, t.Output()))
}
