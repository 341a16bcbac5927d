package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "go.temporal.io/sdk/client"
	sdktemporal "go.temporal.io/sdk/temporal"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

// updateTimeout limits the wait for the answer to an update.
const updateTimeout = 5 * time.Second

// These are the errors of an update without an answer. ErrNoRun means that the SidecarSet has no open run, or
// that the run has not received the update. errLate means that the run received the update after the time
// NotAfter of the update.
var (
	ErrNoRun      = errors.New("the SidecarSet has no open run")
	ErrUnanswered = errors.New(protocol.NoAnswer)
	errLate       = errors.New("the run received the request too late; if this continues, compare the clocks of the operator and of Temporal")
)

// Answer is the answer of a run to an update.
type Answer struct {
	Message string
	// Rejected is set if the run rejected the update, so that the update has no effect.
	Rejected bool
}

// Update sends an update to the open run of a SidecarSet, and waits at most updateTimeout for the answer. A
// second update with the same id has no effect, and returns the answer to the first update. An update that the
// run rejects as late has no effect.
func (c *Client) Update(ctx context.Context, set protocol.SetReference, name, id string, payload any) (Answer, error) {
	return c.await(ctx, "UpdateWorkflowExecution", func(ctx context.Context, result any) error {
		return temporal.Update(ctx, c.client, sdk.UpdateWorkflowOptions{
			WorkflowID: protocol.WorkflowID(set.Name, set.UID), UpdateName: name, UpdateID: id, Args: []any{payload},
		}, result)
	})
}

// AnswerTo returns the answer of the newest run to an earlier update. AnswerTo never sends the update.
func (c *Client) AnswerTo(ctx context.Context, set protocol.SetReference, id string) (Answer, error) {
	return c.await(ctx, "PollWorkflowExecutionUpdate", func(ctx context.Context, result any) error {
		handle := c.client.GetWorkflowUpdateHandle(sdk.GetWorkflowUpdateHandleOptions{WorkflowID: protocol.WorkflowID(set.Name, set.UID), UpdateID: id})
		return handle.Get(ctx, result)
	})
}

func (c *Client) await(ctx context.Context, name string, call func(ctx context.Context, result any) error) (Answer, error) {
	if c.Throttled() > 0 {
		return Answer{}, ThrottledError{c.address, c.namespace}
	}
	short, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	short, cause := temporal.NoteThrottling(short)
	var result struct {
		Message string `json:"message"`
	}
	err := cause(call(short, &result))
	rejected, isAnswer := errors.AsType[*sdktemporal.ApplicationError](err)
	switch {
	case isAnswer && rejected.Type() == protocol.LateRequest:
		err = errLate
	case isAnswer:
		result.Message, err = rejected.Message(), nil
	case temporal.IsNotFound(err):
		return Answer{}, ErrNoRun
	}
	c.metrics.calls.WithLabelValues(name, resultOf(err)).Inc()
	if err == nil {
		c.recordAnswer(nil)
		return Answer{result.Message, isAnswer}, nil
	}
	return Answer{}, c.explainUpdate(ctx, err)
}

// explainUpdate returns the error for an update without an answer. A missing worker also causes a timeout, so
// after a timeout the next probe determines whether Temporal is unreachable.
func (c *Client) explainUpdate(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errLate):
		return err
	case IsThrottled(err):
		c.recordAnswer(err)
		return ThrottledError{c.address, c.namespace}
	case !temporal.IsUnreachable(err):
		return fmt.Errorf("ask the run: %w", err)
	}
	if ctx.Err() == nil {
		c.probeSoon()
	}
	c.connection.mu.Lock()
	defer c.connection.mu.Unlock()
	if c.unreachableErr != nil {
		return c.unreachableErr
	}
	return ErrUnanswered
}
