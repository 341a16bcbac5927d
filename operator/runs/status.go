package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

// queryTimeout limits the wait for a worker that answers a query.
const queryTimeout = 2 * time.Second

// Status queries the phase and the message of the open run of a SidecarSet. If no worker answers within
// queryTimeout, Status returns an error.
func (c *Client) Status(ctx context.Context, set protocol.SetReference) (status protocol.RolloutStatus, err error) {
	if c.Throttled() > 0 {
		return status, ThrottledError{c.address, c.namespace}
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	ctx, cause := temporal.NoteThrottling(ctx)
	answer, err := c.client.QueryWorkflow(ctx, protocol.WorkflowID(set.Name, set.UID), "", protocol.StatusQuery)
	if err == nil {
		err = answer.Get(&status)
	}
	c.metrics.calls.WithLabelValues("QueryWorkflow", resultOf(err)).Inc()
	if err = cause(err); err != nil {
		if IsThrottled(err) {
			c.recordAnswer(err)
		}
		return status, fmt.Errorf("query the run of SidecarSet %s: %w", set.Name, err)
	}
	return status, nil
}
