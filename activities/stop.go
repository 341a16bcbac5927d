package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"
)

var errStopping = errors.New("this worker is stopping; another worker continues")

// endedEarly reports whether an activity ended early for an expected reason: the workflow cancelled the activity,
// the worker stops, or err is the error stopped. The activity then returns a valid result.
func endedEarly(ctx context.Context, err error) bool {
	var reason stopped
	return cancelRequested(ctx) || errors.Is(err, errStopping) || errors.As(err, &reason)
}

// cancelRequested reports whether the workflow cancelled ctx.
func cancelRequested(ctx context.Context) bool {
	var canceled *temporal.CanceledError
	return ctx.Err() != nil && errors.As(context.Cause(ctx), &canceled)
}
