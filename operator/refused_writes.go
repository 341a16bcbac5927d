package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
)

// newestEvents is how many events of a run are read to find its newest batch.
const newestEvents = 50

// batchResult is what the results of batches have in common. Those of other
// activities name a phase, or neither list.
type batchResult struct {
	Written []protocol.WrittenPod `json:"written"`
	Reset   int                   `json:"reset"`
	Failed  []protocol.FailedPod  `json:"failed"`
}

// refusedWrites returns a fault if the newest batch in a run's history could write none of
// its pods. Such a batch is no failed activity, because one pod stops no other.
func (c *rolloutClient) refusedWrites(ctx context.Context, set protocol.SetReference) (fault, error) {
	var answer *workflowservice.GetWorkflowExecutionHistoryReverseResponse
	err := c.call(ctx, "GetWorkflowExecutionHistoryReverse", func(short context.Context) (err error) {
		answer, err = c.client.WorkflowService().GetWorkflowExecutionHistoryReverse(short, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
			Namespace: c.namespace, MaximumPageSize: newestEvents,
			Execution: &common.WorkflowExecution{WorkflowId: protocol.WorkflowID(set.Name, set.UID)},
		})
		return err
	})
	if err != nil {
		return fault{}, fmt.Errorf("read what the run of SidecarSet %s did: %w", set.Name, err)
	}
	return refusal(c.converter, answer.GetHistory().GetEvents()), nil
}

// refusal returns the fault of the newest batch among events, the newest first.
func refusal(payloads converter.DataConverter, events []*history.HistoryEvent) fault {
	for _, event := range events {
		results := event.GetActivityTaskCompletedEventAttributes().GetResult().GetPayloads()
		if len(results) != 1 {
			continue
		}
		var batch batchResult
		if err := decode(payloads, results[0], &batch); err != nil || len(batch.Written)+len(batch.Failed)+batch.Reset == 0 {
			continue
		}
		if len(batch.Written)+batch.Reset > 0 {
			return fault{}
		}
		first := slices.MinFunc(batch.Failed, func(a, b protocol.FailedPod) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
		return rolloutFailing("the write of pods such as "+first.PodReference.String(), first.Reason)
	}
	return fault{}
}
