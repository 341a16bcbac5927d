package runs

import "time"

// Backoff is the pause before the last retry. The zero value is that before any retry.
type Backoff time.Duration

// Next doubles the pause, within shortest and longest.
func (b *Backoff) Next(shortest, longest time.Duration) time.Duration {
	*b = Backoff(min(max(2*time.Duration(*b), shortest), longest))
	return time.Duration(*b)
}
