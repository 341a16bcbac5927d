package runs

import "time"

// When Temporal throttles a call, the operator makes no call for MinThrottleBackoff. Each further backoff
// is twice as long, up to maxThrottleBackoff.
const (
	MinThrottleBackoff = time.Second
	maxThrottleBackoff = 30 * time.Second
)

// throttle is the backoff of all calls while Temporal throttles.
type throttle struct {
	until   time.Time
	backoff Backoff
}

// extend starts the next backoff, unless a backoff is in progress.
func (t *throttle) extend(now time.Time) {
	if !now.Before(t.until) {
		t.until = now.Add(t.backoff.Next(MinThrottleBackoff, maxThrottleBackoff))
	}
}

// succeeded records a successful call. succeeded resets the backoff if the time since the end of the last
// backoff exceeds the length of this backoff.
func (t *throttle) succeeded(now time.Time) {
	if now.After(t.until.Add(time.Duration(t.backoff))) {
		*t = throttle{}
	}
}

// reportable reports whether conditions show the throttling. Conditions do not show a single
// throttled call.
func (t *throttle) reportable() bool { return t.backoff > Backoff(MinThrottleBackoff) }

// Backoff is the delay before the last retry. Backoff is zero before the first retry.
type Backoff time.Duration

// Next doubles the delay within the limits shortest and longest, and returns the new delay.
func (b *Backoff) Next(shortest, longest time.Duration) time.Duration {
	*b = Backoff(min(max(2*time.Duration(*b), shortest), longest))
	return time.Duration(*b)
}
