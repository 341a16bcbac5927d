package policies

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/eviction"
	"github.com/outrigger/outrigger/internal/stage"
)

// evictionInterval is the time between two reads of the workflow that evicts the pods of a policy.
const evictionInterval = 10 * time.Second

// Evictions starts and reads the workflows that evict pods. fault is the message of the fault that stops a
// workflow, or "". runs.Client implements Evictions.
type Evictions interface {
	Evictions(ctx context.Context, start protocol.EvictionInput, wakes func(*protocol.EvictionView) bool) (view *protocol.EvictionView, fault string, err error)
}

// Metrics are the metrics of evictions.
type Metrics struct{ failed, overdue, remaining prometheus.Gauge }

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	return &Metrics{
		failed: factory.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_evictions_failed_owners",
			Help: "Owners of evicted pods whose replacements were not better, of all RolloutPolicies.",
		}),
		overdue: factory.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_evictions_overdue_policies",
			Help: "RolloutPolicies with pods to evict after their deadline.",
		}),
		remaining: factory.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_evictions_remaining_pods",
			Help: "Pods that have to be recreated, of all RolloutPolicies that evict pods.",
		}),
	}
}

// observe sets the metrics from the status of all policies.
func (m *Metrics) observe(statuses []outriggerv1.RolloutPolicyStatus) {
	var failed, overdue, remaining float64
	for i := range statuses {
		e := statuses[i].Evictions
		if e == nil {
			continue
		}
		failed += float64(len(e.Failed))
		remaining += float64(e.Remaining)
		if e.Overdue {
			overdue++
		}
	}
	m.failed.Set(failed)
	m.overdue.Set(overdue)
	m.remaining.Set(remaining)
}

// evictionsOf returns the state of the evictions of policy, and starts the workflow that evicts the pods if
// the workflow is not running. If Temporal has lost the workflow, the new workflow starts with the state in
// the status of policy. If the workflow cannot be read, evictionsOf returns the state in the status of
// policy, and w.left keeps the names from the last view of the workflow.
func (w *Writer) evictionsOf(ctx context.Context, policy *outriggerv1.RolloutPolicy, sets appliedSets, now time.Time) (*outriggerv1.EvictionStatus, error) {
	known := policy.Status.Evictions
	if !policy.Spec.Evicts() || policy.DeletionTimestamp != nil || !sets.any && known == nil {
		return nil, nil
	}
	woken := w.woken[policy.UID]
	isNew := func(set types.UID) bool { return !slices.Contains(woken.outdated, set) }
	start := startOf(policy)
	view, fault, err := w.evictions.Evictions(ctx, start, func(view *protocol.EvictionView) bool {
		// The run may wait for pods of other SidecarSets that are never evicted, so the first outdated pods of
		// a SidecarSet wake the run. A change of the policy also wakes the run, because the run then retries
		// failed evictions.
		return woken.generation != policy.Generation || len(sets.outdated) > 0 && view.Remaining == 0 || slices.ContainsFunc(sets.outdated, isNew)
	})
	status := known.DeepCopy()
	switch {
	case err == nil && view != nil:
		w.woken[policy.UID] = wakeReasons{policy.Generation, sets.outdated}
		w.left[policy.UID] = view.Left
		status = statusOf(policy, view, start.View.Pause)
		if fault != "" {
			status.Message = fault + "; " + view.Message
		}
	case fault != "":
		if status == nil {
			status = &outriggerv1.EvictionStatus{WorkflowID: workflowOf(policy)}
		}
		status.Message = fault
	}
	if status != nil {
		// Overdue is computed from status, because the view is outdated while the run does not plan or cannot
		// be read.
		status.Overdue = status.Since != nil && eviction.Overdue(policy, status.Since.Time, now)
	}
	return status, err
}

func workflowOf(policy *outriggerv1.RolloutPolicy) string {
	return protocol.EvictionWorkflowID(policy.Name, policy.UID)
}

// statusOf returns the status for view. known is the pause in the status of policy, or nil. If the run has
// lost this pause, the result contains known.
func statusOf(policy *outriggerv1.RolloutPolicy, view *protocol.EvictionView, known *protocol.Pause) *outriggerv1.EvictionStatus {
	status := &outriggerv1.EvictionStatus{
		WorkflowID: workflowOf(policy),
		Message:    view.Message, Remaining: int32(view.Remaining), Evicted: int32(view.Evicted), Failed: view.Failed,
	}
	if !view.Since.IsZero() {
		status.Since = new(metav1.NewTime(view.Since.Truncate(time.Second)))
	}
	pause := view.Pause
	if view.HasLost(known) {
		pause = known
	}
	if pause != nil {
		status.Paused, status.PausedBy, status.PauseReason = true, pause.By, pause.Reason
		if !pause.At.IsZero() {
			status.PausedAt = new(metav1.NewTime(pause.At.Truncate(time.Second)))
		}
	}
	return status
}

// appliedSets describes the SidecarSets to which a policy applies. any is set if the policy applies to at least one
// SidecarSet. outdated contains the uids of the SidecarSets with outdated pods, without terminating SidecarSets.
type appliedSets struct {
	any      bool
	outdated []types.UID
}

// applied returns the appliedSets of each policy by its name.
func applied(sets []v1alpha1.SidecarSet, policies []outriggerv1.RolloutPolicy) (map[string]appliedSets, error) {
	byName := map[string]appliedSets{}
	for i := range sets {
		policy, err := stage.PolicyOf(&sets[i], policies)
		if err != nil {
			return nil, err
		}
		if policy != nil {
			// The pods of a terminating SidecarSet are not evicted. The operator does not update the status of
			// a terminating SidecarSet.
			outdated := byName[policy.Name].outdated
			if sets[i].DeletionTimestamp == nil && hasOutdatedPods(&sets[i]) {
				outdated = append(outdated, sets[i].UID)
			}
			byName[policy.Name] = appliedSets{any: true, outdated: outdated}
		}
	}
	return byName, nil
}

// hasOutdatedPods reports whether the conditions of set show pods that have to be recreated and may be
// evicted.
func hasOutdatedPods(set *v1alpha1.SidecarSet) bool {
	injected := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionInjected)
	degraded := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionDegraded)
	progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	return injected != nil && injected.Reason == v1alpha1.ReasonPodsWithoutSidecar ||
		degraded != nil && degraded.Reason == v1alpha1.ReasonUnreadablePods ||
		progressing != nil && progressing.Reason == v1alpha1.ReasonNotUpgradablePods
}

// startOf returns the input of a new workflow, with the state in the status of policy.
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
	if known.Paused {
		start.View.Pause = &protocol.Pause{By: known.PausedBy, Reason: known.PauseReason}
		if known.PausedAt != nil {
			start.View.Pause.At = known.PausedAt.Time
		}
	}
	return start
}
