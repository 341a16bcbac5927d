package runs

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// IsThrottled reports whether Temporal throttles the namespace. IsThrottled ignores a ResourceExhausted error
// about a busy workflow.
func IsThrottled(err error) bool {
	return is[ThrottledError](err) || is[*serviceerror.ResourceExhausted](err) && !IsBusy(err)
}

// IsBusy reports whether a signal failed because the run was busy, for example because the run was
// completing.
func IsBusy(err error) bool {
	exhausted, ok := errors.AsType[*serviceerror.ResourceExhausted](err)
	return ok && exhausted.Cause == enums.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW
}

func isUnknownAttribute(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "search attribute") || strings.Contains(err.Error(), protocol.SidecarSetAttribute))
}

// attributesRemedy is the remedy if the operator has no permission to register the search
// attributes.
const attributesRemedy = "outrigger temporal setup registers the search attributes"

// endpoint is the Temporal namespace that the operator uses.
type endpoint struct{ address, namespace string }

// unreachableError returns the error that conditions show while Temporal is unreachable. The error contains
// a cause only if the cause is the same for each attempt. The log contains the other causes.
func (e endpoint) unreachableError(err error) error {
	message := fmt.Sprintf("Temporal at %s does not respond", e.address)
	if cause, remedy := temporal.Explain(err); cause != "" {
		message += fmt.Sprintf(": %s (%s)", cause, remedy)
	}
	return errors.New(message)
}

// rejectedError returns the error that conditions show while Temporal rejects the start of every rollout.
func (e endpoint) rejectedError(err error) error {
	message := fmt.Sprintf("Temporal at %s, namespace %s, rejects rollouts", e.address, e.namespace)
	switch cause, remedy := temporal.Explain(err); {
	case cause != "":
		return fmt.Errorf("%s: %s (%s)", message, cause, remedy)
	case isUnknownAttribute(err):
		return fmt.Errorf("%s: %w (%s)", message, err, attributesRemedy)
	}
	return fmt.Errorf("%s: %w (check that the namespace exists, and that the operator may use the namespace)", message, err)
}

// concernsOneRun reports whether an error of Temporal concerns only the run of one SidecarSet.
func concernsOneRun(err error) bool {
	return !isUnknownAttribute(err) && (is[*serviceerror.DataLoss](err) || is[*serviceerror.Internal](err) || is[*serviceerror.InvalidArgument](err))
}

// RejectedError is returned if Temporal rejects the calls about the rollout of one SidecarSet, for example
// because the data of its last run is damaged.
type RejectedError struct {
	Address string
	Cause   error
}

func (r RejectedError) Error() string {
	return fmt.Sprintf("Temporal at %s rejects the calls about the rollout of this SidecarSet: %s", r.Address, singleLine(r.Cause.Error()))
}

// Unwrap returns the error of Temporal.
func (r RejectedError) Unwrap() error { return r.Cause }

// UnansweredError returns the error of a SidecarSet if Temporal does not respond to calls about the
// SidecarSet, although Temporal responds to other calls.
func (e endpoint) UnansweredError() error {
	message := fmt.Sprintf("Temporal at %s responds, but not to the calls about this SidecarSet", e.address)
	return errors.New(message)
}

// ThrottledError is returned if Temporal rejects calls because of its rate limits. ThrottledError is also
// returned for each call that the operator does not make during the backoff.
type ThrottledError struct{ Address, Namespace string }

func (t ThrottledError) Error() string {
	return fmt.Sprintf("Temporal at %s throttles the calls for namespace %s; the operator makes these calls less often (raise the limits of Temporal, such as frontend.namespaceRPS, or spread the load)", t.Address, t.Namespace)
}
