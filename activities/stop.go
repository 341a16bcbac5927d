package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"
)

var errStopping = errors.New("this worker is stopping; another one goes on")

// withoutCancelRequest ends with ctx, but not because the workflow asks for it.
func withoutCancelRequest(ctx context.Context) (context.Context, func()) {
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !cancelRequested(ctx) {
			cancel()
		}
	})
	return going, func() {
		stop()
		cancel()
	}
}

// endedEarly reports whether a poll ended because the workflow asked for it, or
// because the worker stops; what was done until then stands.
func endedEarly(ctx context.Context, err error) bool {
	return cancelRequested(ctx) || errors.Is(err, errStopping)
}

// cancelRequested reports whether the workflow asked for the end of ctx.
func cancelRequested(ctx context.Context) bool {
	var canceled *temporal.CanceledError
	return ctx.Err() != nil && errors.As(context.Cause(ctx), &canceled)
}
