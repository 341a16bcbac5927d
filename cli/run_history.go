package cli

import (
	"context"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// events calls each with the events of a run, in order; an empty run is the newest.
func (r *runs) events(ctx context.Context, workflow, run string, each func(*history.HistoryEvent)) error {
	all := r.GetWorkflowHistory(ctx, workflow, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		event, err := all.Next()
		if err != nil {
			return r.explain(err)
		}
		each(event)
	}
	return nil
}

// refused lists the pods whose writes the API server refused, and why, each with the
// newest reason. Pods that were written later are not among them.
func (r *runs) refused(ctx context.Context, set *v1alpha1.SidecarSet) ([]protocol.RejectedPod, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	reasons := map[protocol.PodReference]string{}
	err := r.events(ctx, protocol.WorkflowID(set.Name, set.UID), "", func(event *history.HistoryEvent) {
		var result protocol.UpgradeBatchResult
		payloads := event.GetActivityTaskCompletedEventAttributes().GetResult()
		if payloads == nil || r.options.Codec.DataConverter().FromPayloads(payloads, &result) != nil {
			return
		}
		for _, pod := range result.Written {
			delete(reasons, pod.PodReference)
		}
		for _, pod := range result.Rejected {
			reasons[pod.PodReference] = pod.Reason
		}
	})
	var refused []protocol.RejectedPod
	for pod, reason := range reasons {
		refused = append(refused, protocol.RejectedPod{PodReference: pod, Reason: reason})
	}
	return refused, err
}
