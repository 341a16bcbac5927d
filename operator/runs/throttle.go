package runs

import "time"

// While Temporal throttles, the operator makes no call for MinThrottleBackoff, then for
// twice as long each time.
const (
	MinThrottleBackoff = time.Second
	maxThrottleBackoff = 30 * time.Second
)

// throttle is the backoff of all calls while Temporal throttles.
type throttle struct {
	until   time.Time
	backoff Backoff
}

// extend starts the next backoff. Calls that fail during a backoff do not extend it.
func (t *throttle) extend(now time.Time) {
	if !now.Before(t.until) {
		t.until = now.Add(t.backoff.Next(MinThrottleBackoff, maxThrottleBackoff))
	}
}

// succeeded resets the backoff once calls have succeeded for as long as it lasted.
func (t *throttle) succeeded(now time.Time) {
	if now.After(t.until.Add(time.Duration(t.backoff))) {
		*t = throttle{}
	}
}

// reportable reports whether conditions show the throttling. They ignore a single
// throttled call.
func (t *throttle) reportable() bool { return t.backoff > Backoff(MinThrottleBackoff) }

// Backoff is the pause before the last retry. The zero value is that before any retry.
type Backoff time.Duration

// Next doubles the pause, within shortest and longest.
func (b *Backoff) Next(shortest, longest time.Duration) time.Duration {
	*b = Backoff(min(max(2*time.Duration(*b), shortest), longest))
	return time.Duration(*b)
}
