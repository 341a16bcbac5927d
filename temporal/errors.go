package temporal

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
)

// IsUnreachable reports whether Temporal did not answer a call.
func IsUnreachable(err error) bool {
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	return unavailable || IsLate(err)
}

// IsLate reports whether a call timed out.
func IsLate(err error) bool {
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	return late || errors.Is(err, context.DeadlineExceeded)
}

// IsNotFound reports whether Temporal has no such workflow, or no open run of the workflow.
func IsNotFound(err error) bool {
	_, none := errors.AsType[*serviceerror.NotFound](err)
	return none
}

// IsSilent reports whether a query with a context failed because no worker responds for the run. Soon after
// the last poll, Temporal rejects queries. It also rejects them after failed attempts of the workflow task, and
// cancels a query whose worker stops.
func IsSilent(ctx context.Context, err error) bool {
	_, unpolled := errors.AsType[*serviceerror.FailedPrecondition](err)
	_, failing := errors.AsType[*serviceerror.WorkflowNotReady](err)
	_, stopped := errors.AsType[*serviceerror.Canceled](err)
	return unpolled || failing || stopped && ctx.Err() == nil || IsUnreachable(err)
}

// NoWorker is the text about a task queue whose workers do not respond, although Temporal does. does names
// the missing action of the workers, such as "polls".
func NoWorker(does, queue, address, namespace string) string {
	return fmt.Sprintf("Temporal answers, but no worker %s task queue %s (Temporal at %s, namespace %s)", does, queue, address, namespace)
}
