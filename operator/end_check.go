package operator

import (
	"time"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/operator/runs"
)

const (
	// The run of a rollout whose end is to be recorded is checked after minEndInterval,
	// then after twice as long each time.
	minEndInterval = time.Second
	maxEndInterval = 5 * time.Minute
	// lostRunGrace is how long a run that did not complete must be gone: its last
	// activity may not know yet, and write.
	lostRunGrace = time.Minute
)

// endCheck looks for the end of the run whose pods have all converged. Status records the
// end only after the run has ended, and before another one begins: each pod that a later
// run upgrades names a later resourceVersion of the SidecarSet.
type endCheck struct {
	generation int64
	at         time.Time
	interval   runs.Backoff
	lostSince  time.Time
}

// left is the time until the next check.
func (c *endCheck) left(generation int64, now time.Time) time.Duration {
	if c.generation != generation {
		*c = endCheck{generation: generation}
		c.backOff(now)
	}
	return c.at.Sub(now)
}

// ended reports whether the newest run shows the end.
func (c *endCheck) ended(set *v1alpha1.SidecarSet, run *runs.Run, now time.Time) bool {
	switch {
	case run.Completed() && !run.GenerationMismatch(set):
		return true
	case run.Open():
		c.lostSince = time.Time{}
	case c.lostSince.IsZero():
		c.lostSince = now
	case now.Sub(c.lostSince) >= lostRunGrace:
		return true
	}
	c.backOff(now)
	return false
}

func (c *endCheck) backOff(now time.Time) {
	c.at = now.Add(c.interval.Next(minEndInterval, maxEndInterval))
}
