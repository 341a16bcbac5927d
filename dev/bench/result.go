package main

import (
	"maps"
	"slices"
	"time"

	"github.com/outrigger/outrigger/dev/bench/figures"
)

// result is what one rollout took.
type result struct {
	pods, window, worst int
	took                time.Duration
	// before and after are the ideal mover's; nil: it did not go.
	before, after *idealMove
	// processors is the processor time of each process during the rollout, in seconds.
	processors                map[string]float64
	batches, events, failures int
	actions                   actions
	restarts                  int32
	writes, memory            map[string]float64
}

// String prints one figure a line, so that runs can be compared by diff.
func (r *result) String() string {
	var lines figures.Lines
	lines.Add("pods", "%d", r.pods)
	lines.Add("window", "%d", r.window)
	lines.Seconds("seconds", r.took)
	if r.before != nil {
		lines.Seconds("ideal mover before, seconds", r.before.took)
		lines.Seconds("ideal mover after, seconds", r.after.took)
		lines.Add("times the ideal", "%.2f", timesIdeal(r))
	}
	lines.Add("most in flight at once", "%d", r.worst)
	lines.Add("app containers restarted", "%d", r.restarts)
	lines.Add("batches", "%d", r.batches)
	lines.Add("history events", "%d", r.events)
	lines.Add("history events a pod", "%.3f", float64(r.events)/float64(r.pods))
	lines.Add("actions of Temporal Cloud", "%d", r.actions.total())
	lines.Add("  of them heartbeats", "%d", r.actions.heartbeats)
	lines.Add("  of them activities", "%d", r.actions.activities)
	lines.Add("actions a pod", "%.3f", float64(r.actions.total())/float64(r.pods))
	lines.Add("workflow task failures", "%d", r.failures)
	lines.Each("API writes a pod", "%.3f", figures.Scaled(r.writes, 1/float64(r.pods)))
	lines.Each("peak memory, MiB", "%.0f", r.memory)
	for _, name := range slices.Sorted(maps.Keys(r.processors)) {
		if r.before == nil {
			lines.Add("processor seconds, "+name, "%.1f", r.processors[name])
			continue
		}
		lines.Add("processor seconds, "+name, "%.1f (ideal %.1f, %.1f)", r.processors[name], r.before.processors[name], r.after.processors[name])
	}
	return lines.String()
}

// timesIdeal compares a rollout with what the ideal mover took before and after it.
func timesIdeal(r *result) float64 {
	return 2 * r.took.Seconds() / (r.before.took + r.after.took).Seconds()
}

// medianTimesIdeal is that of the middle round, or the mean of the middle two.
func medianTimesIdeal(rounds []*result) float64 {
	ratios := make([]float64, len(rounds))
	for i, r := range rounds {
		ratios[i] = timesIdeal(r)
	}
	slices.Sort(ratios)
	return (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
}
