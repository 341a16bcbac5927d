package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxConnections limits idle connections. An idle connection uses about 100 KiB.
	maxConnections = 2000
	// smallBody is the maximum size of a body that needs no reservation. One small body for each connection
	// fits into memory.
	smallBody = 64 << 10
	// lightWeight is the maximum weight of a light request. Only hostile and very large requests are heavier.
	lightWeight = 1 << 20
)

// limits are the limits for requests in flight. The sum of the limits is below the memory limit of
// config/deploy.
type limits struct {
	// requests is a number of requests. The other limits are in bytes.
	requests, reading, light, heavy int64
	// wait limits the time in the queue.
	wait time.Duration
}

func defaultLimits() limits {
	return limits{requests: 1000, reading: 64 << 20, light: 128 << 20, heavy: 256 << 20, wait: time.Second}
}

// load counts the requests in flight and the memory for these requests. Heavy requests wait in a separate
// queue, so that many heavy requests do not delay the admission of pods.
type load struct {
	limits
	inFlight, bodies, lightly, heavily *semaphore.Weighted
}

func newLoad(l limits) *load {
	return &load{l, semaphore.NewWeighted(l.requests), semaphore.NewWeighted(l.reading), semaphore.NewWeighted(l.light), semaphore.NewWeighted(l.heavy)}
}

// overloadError is an error that the server answers with status 429.
type overloadError struct {
	kind  string
	limit int64
}

func (e overloadError) Error() string {
	return fmt.Sprintf("the webhook is overloaded: the limit of %d concurrent %s is reached; retry in a second", e.limit, e.kind)
}

// enter counts a request as in flight until the returned function is called.
func (l *load) enter() (leave func(), err error) {
	if !l.inFlight.TryAcquire(1) {
		return nil, overloadError{"requests", l.requests}
	}
	return func() { l.inFlight.Release(1) }, nil
}

// readBody reserves the bytes of a body before the server reads the body. If length is negative, the length
// of the body is not known, and readBody reserves maxLength.
func (l *load) readBody(ctx context.Context, length, maxLength int64) (release func(), err error) {
	if length < 0 {
		length = maxLength
	}
	if length <= smallBody {
		return func() {}, nil
	}
	return l.reserve(ctx, l.bodies, length, overloadError{"bytes of large requests", l.reading})
}

// decode reserves the memory that is needed to decode a body.
func (l *load) decode(ctx context.Context, weight int64) (release func(), err error) {
	if weight <= lightWeight {
		return l.reserve(ctx, l.lightly, weight, overloadError{"bytes", l.light})
	}
	return l.reserve(ctx, l.heavily, weight, overloadError{"bytes of large requests", l.heavy})
}

// reserve acquires n units of the given semaphore, or over.limit units if n is greater. If the units are not
// available within l.wait, reserve returns over.
func (l *load) reserve(ctx context.Context, of *semaphore.Weighted, n int64, over overloadError) (release func(), err error) {
	n = min(n, over.limit)
	ctx, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	if of.TryAcquire(n) || of.Acquire(ctx, n) == nil {
		return func() { of.Release(n) }, nil
	}
	return func() {}, over
}

// AtMost returns a responder that calls respond for at most n requests at a time. kind describes these
// requests in the error of a rejected request.
func (s *Server) AtMost(n int64, kind string, respond Responder) Responder {
	of := semaphore.NewWeighted(n)
	return func(ctx context.Context, buffers *Buffers) (status int, err error) {
		release, err := s.load.reserve(ctx, of, 1, overloadError{kind, n})
		if err != nil {
			return http.StatusTooManyRequests, err
		}
		defer release()
		return respond(ctx, buffers)
	}
}
