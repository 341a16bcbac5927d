package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxConnections bounds what those cost that say nothing: some 100 KiB each.
	maxConnections = 2000
	// smallBody is read without asking: as many of them as there are connections
	// fit into memory.
	smallBody = 64 << 10
	// lightWeight is that of all but hostile and very large requests, which wait
	// in a queue of their own.
	lightWeight = 1 << 20
)

// bounds are how much may be in flight. Together they stay below the memory limit
// of config/deploy.
type bounds struct {
	// requests is a number, the others are bytes.
	requests, reading, light, heavy int64
	// wait is how long a request waits for others.
	wait time.Duration
}

func defaultBounds() bounds {
	return bounds{requests: 1000, reading: 64 << 20, light: 128 << 20, heavy: 256 << 20, wait: time.Second}
}

// load is what is in flight. Requests wait in turn, large ones in a queue of their
// own, so that a flood of them does not keep pods out.
type load struct {
	bounds
	inFlight, bodies, lightly, heavily *semaphore.Weighted
}

func newLoad(b bounds) *load {
	return &load{b, semaphore.NewWeighted(b.requests), semaphore.NewWeighted(b.reading), semaphore.NewWeighted(b.light), semaphore.NewWeighted(b.heavy)}
}

// overloadError is answered with 429.
type overloadError struct {
	what  string
	bound int64
}

func (e overloadError) Error() string {
	return fmt.Sprintf("the webhook is overloaded: %s in flight exceed %d; try again in a second", e.what, e.bound)
}

// enter counts a request in, and what it returns counts it out.
func (l *load) enter() (leave func(), err error) {
	if !l.inFlight.TryAcquire(1) {
		return nil, overloadError{"requests", l.requests}
	}
	return func() { l.inFlight.Release(1) }, nil
}

// reading reserves the bytes of a body before it is read; one of unknown length,
// which is negative, may be the largest.
func (l *load) reading(ctx context.Context, length, largest int64) (free func(), err error) {
	if length < 0 {
		length = largest
	}
	if length <= smallBody {
		return func() {}, nil
	}
	return l.reserve(ctx, l.bodies, length, overloadError{"bytes of large requests", l.bounds.reading})
}

// deciding reserves what decoding takes.
func (l *load) deciding(ctx context.Context, weight int64) (free func(), err error) {
	if weight <= lightWeight {
		return l.reserve(ctx, l.lightly, weight, overloadError{"bytes", l.light})
	}
	return l.reserve(ctx, l.heavily, weight, overloadError{"bytes of large requests", l.heavy})
}

// reserve waits its turn for a while. Who needs more than there is gets all of it.
func (l *load) reserve(ctx context.Context, of *semaphore.Weighted, n int64, over overloadError) (free func(), err error) {
	n = min(n, over.bound)
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	if of.TryAcquire(n) || of.Acquire(ctx, n) == nil {
		return func() { of.Release(n) }, nil
	}
	return func() {}, over
}

// AtMost lets so many requests of a kind be decided at once.
func (s *Server) AtMost(n int64, kind string, respond Responder) Responder {
	of := semaphore.NewWeighted(n)
	return func(ctx context.Context, buffers *Buffers) (status int, err error) {
		free, err := s.load.reserve(ctx, of, 1, overloadError{kind, n})
		if err != nil {
			return http.StatusTooManyRequests, err
		}
		defer free()
		return respond(ctx, buffers)
	}
}
