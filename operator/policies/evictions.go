package policies

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// evictionInterval is the time between two reads of the workflow that evicts the pods of a policy.
const evictionInterval = 10 * time.Second

// Evictions starts and reads the workflows that evict pods. Package operator/runs implements it.
type Evictions interface {
	Evictions(ctx context.Context, start protocol.EvictionInput) (*protocol.EvictionView, error)
}

// evictions returns the state of the evictions of a policy, and starts the workflow that evicts the
// pods. A workflow that Temporal has lost continues from status. If the workflow cannot be read,
// status stays unchanged.
func (w *Writer) evictionsOf(ctx context.Context, policy *outriggerv1.RolloutPolicy, sidecarSets int32) (*outriggerv1.EvictionStatus, error) {
	known := policy.Status.Evictions
	if !policy.Spec.Evicts() || policy.DeletionTimestamp != nil || sidecarSets == 0 && known == nil {
		return nil, nil
	}
	view, err := w.evictions.Evictions(ctx, startOf(policy))
	if err != nil || view == nil {
		return known, err
	}
	status := &outriggerv1.EvictionStatus{
		WorkflowID: protocol.EvictionWorkflowID(policy.Name, policy.UID),
		Message:    view.Message, Remaining: int32(view.Remaining), Evicted: int32(view.Evicted), Overdue: view.Overdue, Failed: view.Failed,
	}
	if !view.Since.IsZero() {
		status.Since = new(metav1.NewTime(view.Since.Truncate(time.Second)))
	}
	if view.Pause != nil {
		status.PausedBy, status.PauseReason = view.Pause.By, view.Pause.Reason
	}
	return status, nil
}

// startOf returns the input of a new workflow.
func startOf(policy *outriggerv1.RolloutPolicy) protocol.EvictionInput {
	start := protocol.EvictionInput{Policy: protocol.PolicyReference{Name: policy.Name, UID: policy.UID}}
	known := policy.Status.Evictions
	if known == nil {
		return start
	}
	start.State = protocol.EvictionState{PolicyGeneration: policy.Status.ObservedGeneration, Failed: known.Failed, Evicted: int(known.Evicted)}
	if known.Since != nil {
		start.State.Since = known.Since.Time
	}
	if known.PausedBy != "" || known.PauseReason != "" {
		start.View.Pause = &protocol.Pause{By: known.PausedBy, Reason: known.PauseReason}
	}
	return start
}
