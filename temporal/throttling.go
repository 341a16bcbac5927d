package temporal

import (
	"context"
	"errors"
	"sync/atomic"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lastThrottling is the error of the last attempt of a call, if Temporal throttled the attempt.
type lastThrottling = atomic.Pointer[serviceerror.ResourceExhausted]

type throttlingKey struct{}

// NoteThrottling returns a context for a call, and a function that replaces the error of the call. The SDK
// retries throttled calls until the deadline, and then returns only a DeadlineExceeded error. If Temporal
// throttled the last attempt, the function returns the ResourceExhausted error of Temporal instead.
func NoteThrottling(ctx context.Context) (context.Context, func(error) error) {
	last := &lastThrottling{}
	return context.WithValue(ctx, throttlingKey{}, last), func(err error) error {
		if throttled := last.Load(); throttled != nil && IsLate(err) {
			return throttled
		}
		return err
	}
}

// ofOneRun reports whether a limit applies to a single run, such as the limit of concurrent updates of a run.
func ofOneRun(cause enums.ResourceExhaustedCause) bool {
	return cause == enums.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW || cause == enums.RESOURCE_EXHAUSTED_CAUSE_CONCURRENT_LIMIT
}

// noteThrottling is a gRPC interceptor, which records whether Temporal throttled the attempt. An attempt
// without a response does not change the record.
func noteThrottling(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, request, answer, conn, options...)
	last, ok := ctx.Value(throttlingKey{}).(*lastThrottling)
	if code := status.Code(err); ok && code != codes.DeadlineExceeded && code != codes.Canceled {
		throttled, _ := errors.AsType[*serviceerror.ResourceExhausted](serviceerror.FromStatus(status.Convert(err)))
		if throttled != nil && ofOneRun(throttled.Cause) {
			throttled = nil
		}
		last.Store(throttled)
	}
	return err
}
