package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// refreshAge is when what the API server said is asked for again, and maxAge
	// how old it may be when a pod is written.
	refreshAge = time.Second
	maxAge     = 2 * time.Second
)

// recent is what the API server said at most maxAge ago.
type recent[T any] struct {
	clock clock.PassiveClock
	ask   func(context.Context) (T, error)

	mu     sync.Mutex
	asked  time.Time
	answer T
}

func newRecent[T any](clock clock.PassiveClock, ask func(context.Context) (T, error)) *recent[T] {
	return &recent[T]{clock: clock, ask: ask}
}

// get asks at most once in refreshAge. An answer that took longer than maxAge is
// an error: it says how things were when it was asked for.
func (r *recent[T]) get(ctx context.Context) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && r.clock.Since(r.asked) < refreshAge {
		return r.answer, nil
	}
	var none T
	asked := r.clock.Now()
	answer, err := r.ask(ctx)
	if err != nil {
		return none, err
	}
	if late := r.clock.Since(asked); late > maxAge {
		return none, fmt.Errorf("the API server's answer took %s and is too old to act on", late)
	}
	r.asked, r.answer = asked, answer
	return answer, nil
}
