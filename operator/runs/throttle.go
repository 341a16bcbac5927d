package runs

import "time"

// When Temporal throttles a call, the operator makes no call for MinThrottleBackoff. The backoff
// doubles each time, up to maxThrottleBackoff.
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

// succeeded resets the backoff once calls have succeeded for as long as the backoff lasted.
func (t *throttle) succeeded(now time.Time) {
	if now.After(t.until.Add(time.Duration(t.backoff))) {
		*t = throttle{}
	}
}

// reportable reports whether conditions show the throttling. Conditions do not show a single
// throttled call.
func (t *throttle) reportable() bool { return t.backoff > Backoff(MinThrottleBackoff) }

// Backoff is the delay before the last retry. It is zero before the first retry.
type Backoff time.Duration

// Next doubles the delay within the limits shortest and longest, and returns the new delay.
func (b *Backoff) Next(shortest, longest time.Duration) time.Duration {
	*b = Backoff(min(max(2*time.Duration(*b), shortest), longest))
	return time.Duration(*b)
}
