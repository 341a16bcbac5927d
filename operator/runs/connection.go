package runs

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
)

// callTimeout limits each call to Temporal.
const callTimeout = 3 * time.Second

// connection makes calls to Temporal.
type connection struct {
	*availability
	client sdk.Client
	calls  *prometheus.CounterVec
}

// method is a method of one of Temporal's services.
type method[Request, Response any] = func(context.Context, Request, ...grpc.CallOption) (Response, error)

// call makes one call to Temporal, unless that throttles. It bypasses the SDK's own
// retries: they would go on against a throttling server until the deadline, and then
// return nothing but the deadline.
func call[Request, Response any](ctx context.Context, c *connection, name string, do method[Request, Response], request Request) (response Response, err error) {
	if c.Throttled() > 0 {
		return response, ThrottledError{c.address, c.namespace}
	}
	response, err = callNow(ctx, c, name, do, request)
	if ctx.Err() == nil && IsUnreachable(err) {
		c.probeSoon()
	}
	return response, err
}

func callNow[Request, Response any](ctx context.Context, c *connection, name string, do method[Request, Response], request Request) (Response, error) {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := do(short, request)
	c.calls.WithLabelValues(name, resultOf(err)).Inc()
	if ctx.Err() == nil {
		c.recordAnswer(err)
	}
	return response, err
}
