package operator

import (
	"time"
)

const (
	// While Temporal throttles, no call is made for minThrottleBackoff, then for twice
	// as long each time.
	minThrottleBackoff = time.Second
	maxThrottleBackoff = 30 * time.Second
)

// throttle is the backoff of all calls while Temporal throttles.
type throttle struct {
	until   time.Time
	backoff time.Duration
}

// extend starts a backoff, twice as long as one that has hardly passed.
func (t *throttle) extend(now time.Time) {
	if now.Before(t.until) {
		// Calls in flight together count once.
		return
	}
	t.backoff = min(max(2*t.backoff, minThrottleBackoff), maxThrottleBackoff)
	t.until = now.Add(t.backoff)
}

// succeeded resets the backoff once calls have succeeded for as long again.
func (t *throttle) succeeded(now time.Time) {
	if now.After(t.until.Add(t.backoff)) {
		*t = throttle{}
	}
}

// reportable reports whether conditions show the throttling: one call in many does not
// count.
func (t *throttle) reportable() bool { return t.backoff > minThrottleBackoff }
