package temporal

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
)

// IsUnreachable reports whether a call failed because Temporal did not respond.
func IsUnreachable(err error) bool {
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	return unavailable || IsLate(err)
}

// IsLate reports whether a call timed out.
func IsLate(err error) bool {
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	return late || errors.Is(err, context.DeadlineExceeded)
}

// IsNotFound reports whether a call failed because the workflow does not exist, or has no open run.
func IsNotFound(err error) bool {
	_, none := errors.AsType[*serviceerror.NotFound](err)
	return none
}

// IsSilent reports whether a query with context ctx failed because no worker responds for the run. Temporal
// rejects a query if no worker has polled recently, and after failed attempts of the workflow task. Temporal
// cancels a query whose worker stops. IsSilent also returns true for a timeout and for an unreachable server.
func IsSilent(ctx context.Context, err error) bool {
	_, unpolled := errors.AsType[*serviceerror.FailedPrecondition](err)
	_, failing := errors.AsType[*serviceerror.WorkflowNotReady](err)
	_, stopped := errors.AsType[*serviceerror.Canceled](err)
	return unpolled || failing || stopped && ctx.Err() == nil || IsUnreachable(err)
}

// NoWorker returns the message about a task queue whose workers do not respond although Temporal responds. does
// is the action that no worker takes, such as "polls".
func NoWorker(does, queue, address, namespace string) string {
	return fmt.Sprintf("Temporal responds, but no worker %s task queue %s (Temporal at %s, namespace %s)", does, queue, address, namespace)
}
