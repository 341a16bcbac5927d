package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSoakTellsGrowthFromNoise(t *testing.T) {
	for name, c := range map[string]struct {
		at   func(i float64) float64
		flat bool
	}{
		"noise":      {func(i float64) float64 { return 300 + float64(int(i)%7) }, true},
		"warming up": {func(i float64) float64 { return 300 * min(1, i/10) }, true},
		"a leak":     {func(i float64) float64 { return 300 + 3*i }, false},
	} {
		s := soak{}
		for i := range 100 {
			s["go_goroutines worker-1"] = append(s["go_goroutines worker-1"], c.at(float64(i)))
		}
		assert.Equal(t, c.flat, s.judge(io.Discard) == nil, name)
	}
}
