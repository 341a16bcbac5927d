package operator

import (
	"fmt"
	"time"
)

// throttle is how long Temporal is left alone since it said that it has too
// much to do.
type throttle struct {
	until time.Time
	pause time.Duration
}

// hit doubles the pause if the one before has hardly passed.
func (t *throttle) hit(now time.Time) {
	if now.Before(t.until) {
		// One of several calls that were under way together.
		return
	}
	t.pause = min(max(2*t.pause, shortestThrottle), longestThrottle)
	t.until = now.Add(t.pause)
}

// passed forgets it once calls have gone well for as long again.
func (t *throttle) passed(now time.Time) {
	if now.After(t.until.Add(t.pause)) {
		*t = throttle{}
	}
}

// lasting reports whether it is worth words: one call in many is not.
func (t *throttle) lasting() bool { return t.pause > shortestThrottle }

// throttling says that Temporal answers, but not as often as is asked of it.
type throttling struct{ address, namespace string }

func (t throttling) Error() string {
	return fmt.Sprintf("Temporal at %s throttles the calls for namespace %s; they are made less often (raise its limits, such as frontend.namespaceRPS, or spread the load)", t.address, t.namespace)
}

// notAsked is the answer to a call that was not made.
type notAsked struct{ left time.Duration }

func (n notAsked) Error() string {
	return fmt.Sprintf("not asked for another %s, since Temporal throttles", n.left.Round(time.Millisecond))
}
