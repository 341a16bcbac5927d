package temporal

import (
	"context"
	"errors"

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
