package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

func isUnreachable(err error) bool {
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded)
}

// isThrottle reports whether Temporal throttles the namespace. A busy workflow does not
// mean that it does.
func isThrottle(err error) bool {
	var exhausted *serviceerror.ResourceExhausted
	var notCalled notCalledError
	return errors.As(err, &notCalled) || errors.As(err, &exhausted) && exhausted.Cause != enums.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW
}

func isUnknownAttribute(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "search attribute") || strings.Contains(err.Error(), protocol.SidecarSetAttribute))
}

// unreachableError names causes that stay the same from one attempt to the next, as it
// goes into conditions. Others are left to the log.
func (c *rolloutClient) unreachableError(err error) error {
	message := fmt.Sprintf("Temporal at %s does not answer", c.address)
	if cause, remedy := temporal.Explain(err); cause != "" {
		message += fmt.Sprintf(": %s (%s)", cause, remedy)
	}
	return errors.New(message)
}

func (c *rolloutClient) refusedError(err error) error {
	message := fmt.Sprintf("Temporal at %s, namespace %s, refuses rollouts", c.address, c.namespace)
	switch cause, remedy := temporal.Explain(err); {
	case cause != "":
		return fmt.Errorf("%s: %s (%s)", message, cause, remedy)
	case isUnknownAttribute(err):
		return fmt.Errorf("%s: %w (%s)", message, err, attributesRemedy(c.address, c.namespace))
	}
	return fmt.Errorf("%s: %w (does the namespace exist, and may the operator use it?)", message, err)
}

// throttlingError is why a Temporal that answers, but not every call, takes no rollouts.
type throttlingError struct{ address, namespace string }

func (t throttlingError) Error() string {
	return fmt.Sprintf("Temporal at %s throttles the calls for namespace %s; they are made less often (raise its limits, such as frontend.namespaceRPS, or spread the load)", t.address, t.namespace)
}

// notCalledError is the result of a call that was not made.
type notCalledError struct{ left time.Duration }

func (n notCalledError) Error() string {
	return fmt.Sprintf("not asked for another %s, since Temporal throttles", n.left.Round(time.Millisecond))
}
