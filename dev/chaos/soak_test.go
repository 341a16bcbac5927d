package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// line is a series of 100 samples.
func line(at func(i float64) float64) []float64 {
	var values []float64
	for i := range 100 {
		values = append(values, at(float64(i)))
	}
	return values
}

func TestSoakTellsGrowthFromNoise(t *testing.T) {
	steps := line(func(i float64) float64 { return 10 * i })
	for name, c := range map[string]struct {
		series string
		values []float64
		flat   bool
	}{
		"constant":                   {"goroutines of worker-1", line(func(float64) float64 { return 300 }), true},
		"noise":                      {"memory of worker-1", line(func(i float64) float64 { return 80e6 + 5e6*float64(int(i)%7) }), true},
		"warming up":                 {"memory of worker-1", line(func(i float64) float64 { return 80e6 * min(1, i/10) }), true},
		"a leak":                     {"goroutines of worker-1", line(func(i float64) float64 { return 300 + 3*i }), false},
		"a leak of memory":           {"memory of operator", line(func(i float64) float64 { return 80e6 + 1e6*i }), false},
		"a database of histories":    {"database of Temporal", line(func(i float64) float64 { return 40e6 * i }), true},
		"histories that grow longer": {"database of Temporal", line(func(i float64) float64 { return 40e3 * i * i }), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &soak{series: map[string][]float64{c.series: c.values}, upgrades: steps}
			assert.Equal(t, c.flat, s.judge(io.Discard) == nil)
		})
	}
	require.Error(t, (&soak{upgrades: []float64{1, 2}}).judge(io.Discard), "too few samples")
}
