package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// minSamples are needed to tell growth from noise.
const minSamples = 20

// tolerance is by how much the mean of the second half may exceed that of the first:
// a share of it, and something on top for small numbers.
type tolerance struct{ share, more float64 }

func toleranceOf(name string) tolerance {
	switch {
	case strings.HasPrefix(name, "goroutines"):
		return tolerance{0.10, 20}
	case strings.HasPrefix(name, "open files"):
		return tolerance{0.10, 5}
	case strings.HasPrefix(name, "memory"):
		return tolerance{0.20, 16 << 20}
	case strings.HasPrefix(name, "database"):
		return tolerance{0.25, 256}
	}
	return tolerance{0.10, 5}
}

// growth compares the first half of a series with the second.
type growth struct {
	name          string
	first, second float64
	flat          bool
}

// judge prints whether each series is flat, and fails unless all are. The first
// tenth does not count: caches fill. Databases keep
// histories for their retention, so the bytes per upgrade of a pod are compared.
func (s *soak) judge(out io.Writer) error {
	if n := len(s.upgrades); n < minSamples {
		return fmt.Errorf("soak: only %d samples, %d are needed; run for longer", n, minSamples)
	}
	var grown []error
	for _, name := range slices.Sorted(maps.Keys(s.series)) {
		g := s.growthOf(name)
		verdict := "flat"
		if !g.flat {
			verdict = "GROWS"
			grown = append(grown, fmt.Errorf("soak: %s grows from %.0f to %.0f", name, g.first, g.second))
		}
		allowed := toleranceOf(name)
		if _, err := fmt.Fprintf(out, "%-32s %14.0f %14.0f  %s (+%.0f%% and %.0f allowed)\n", name, g.first, g.second, verdict, 100*allowed.share, allowed.more); err != nil {
			return err
		}
	}
	return errors.Join(grown...)
}

func (s *soak) growthOf(name string) growth {
	values, upgrades := s.series[name], s.upgrades
	warm := len(values) / 10
	values, upgrades = values[warm:], upgrades[warm:]
	half := len(values) / 2
	g := growth{name: name}
	if strings.HasPrefix(name, "database") {
		g.first = perUpgrade(values[:half], upgrades[:half])
		g.second = perUpgrade(values[half:], upgrades[half:])
		g.name += ", bytes an upgrade"
	} else {
		g.first, g.second = mean(values[:half]), mean(values[half:])
	}
	allowed := toleranceOf(name)
	g.flat = g.second <= g.first*(1+allowed.share)+allowed.more
	return g
}

func perUpgrade(bytes, upgrades []float64) float64 {
	last := len(bytes) - 1
	return max(bytes[last]-bytes[0], 0) / max(upgrades[last]-upgrades[0], 1)
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}
