package policies

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// recorded returns the view of a run, and records the inputs of starts.
type recorded struct {
	view   *protocol.EvictionView
	fault  string
	err    error
	starts []protocol.EvictionInput
	woken  bool
}

func (r *recorded) Evictions(_ context.Context, start protocol.EvictionInput, wakes func(*protocol.EvictionView) bool) (view *protocol.EvictionView, fault string, err error) {
	r.starts, r.woken = append(r.starts, start), r.view != nil && wakes(r.view)
	return r.view, r.fault, r.err
}

var since = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

func evicting() *outriggerv1.RolloutPolicy {
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "p1", Generation: 3}}
	policy.Spec.NotUpgradable = &outriggerv1.RolloutNotUpgradable{Action: outriggerv1.EvictNotUpgradable}
	return policy
}

func (r *recorded) status(t *testing.T, policy *outriggerv1.RolloutPolicy, sets ...v1alpha1.SidecarSet) *outriggerv1.EvictionStatus {
	t.Helper()
	w := &Writer{evictions: r, left: map[types.UID][]string{}, woken: map[types.UID]wakeReasons{policy.UID: {generation: policy.Generation}}}
	applied, err := applied(sets, []outriggerv1.RolloutPolicy{*policy})
	require.NoError(t, err)
	status, err := w.evictionsOf(t.Context(), policy, applied[policy.Name], since)
	require.ErrorIs(t, err, r.err)
	if r.view != nil {
		assert.Equal(t, map[types.UID][]string{policy.UID: r.view.Left}, w.left)
	}
	return status
}

func TestSpec13_5_NoRunWithoutEvict(t *testing.T) {
	r := &recorded{}
	policy := evicting()
	assert.Nil(t, r.status(t, policy), "the policy applies to no SidecarSet")
	policy.Spec.NotUpgradable.Action = outriggerv1.LeaveNotUpgradable
	assert.Nil(t, r.status(t, policy, v1alpha1.SidecarSet{}))
	assert.Empty(t, r.starts)
}

func TestSpec13_5_StatusShowsTheRun(t *testing.T) {
	failed := []outriggerv1.FailedEviction{{SidecarSet: "logs", Generation: 2, Namespace: "shop", Kind: "ReplicaSet", Name: "web", Reason: "no better"}}
	r := &recorded{view: &protocol.EvictionView{
		Message: "5 pods have to be recreated", Remaining: 5, Evicted: 2, Since: since, Failed: failed, Pause: &protocol.Pause{By: "ann", Reason: "lunch"}, Left: []string{"logs"},
	}}
	want := &outriggerv1.EvictionStatus{
		WorkflowID: "eviction/edge/p1", Message: "5 pods have to be recreated", Remaining: 5, Evicted: 2, Since: new(metav1.NewTime(since)),
		Failed: failed, Paused: true, PausedBy: "ann", PauseReason: "lunch",
	}
	assert.Equal(t, want, r.status(t, evicting(), v1alpha1.SidecarSet{}))
	assert.False(t, r.woken)
}

func TestSpec13_5_ALostRunContinuesFromStatus(t *testing.T) {
	r := &recorded{}
	policy := evicting()
	policy.Status.ObservedGeneration = 3
	policy.Status.Evictions = &outriggerv1.EvictionStatus{
		Evicted: 7, Since: new(metav1.NewTime(since)), Paused: true, PausedBy: "ann", Failed: []outriggerv1.FailedEviction{{SidecarSet: "logs", Name: "web"}},
	}
	assert.Equal(t, policy.Status.Evictions, r.status(t, policy, v1alpha1.SidecarSet{}), "status is kept until the run has a view")
	require.Len(t, r.starts, 1)
	assert.Equal(t, protocol.EvictionInput{
		Policy: protocol.PolicyReference{Name: "edge", UID: "p1"},
		State:  protocol.EvictionState{PolicyGeneration: 3, Evicted: 7, Since: since, Failed: policy.Status.Evictions.Failed},
		View:   protocol.EvictionView{Pause: &protocol.Pause{By: "ann"}},
	}, r.starts[0])

	r.err = errors.New("Temporal does not respond")
	assert.Equal(t, policy.Status.Evictions, r.status(t, policy, v1alpha1.SidecarSet{}))
}

func TestSpec13_5_StatusShowsTheFaultOfTheRun(t *testing.T) {
	r := &recorded{fault: "activity PlanEvictions fails repeatedly: forbidden"}
	policy := evicting()
	want := &outriggerv1.EvictionStatus{WorkflowID: "eviction/edge/p1", Message: r.fault}
	assert.Equal(t, want, r.status(t, policy, v1alpha1.SidecarSet{}), "the run has no view yet")

	policy.Status.Evictions = &outriggerv1.EvictionStatus{WorkflowID: "eviction/edge/p1", Message: "old", Evicted: 2}
	r.status(t, policy, v1alpha1.SidecarSet{})
	assert.Equal(t, "old", policy.Status.Evictions.Message, "the policy belongs to the cache")

	r.view = &protocol.EvictionView{Message: "5 pods have to be recreated", Remaining: 5}
	want = &outriggerv1.EvictionStatus{WorkflowID: "eviction/edge/p1", Message: r.fault + "; 5 pods have to be recreated", Remaining: 5}
	assert.Equal(t, want, r.status(t, policy, v1alpha1.SidecarSet{}))
}

func TestSpec13_4_TheDeadlineAlsoPassesWhileTheRunDoesNotPlan(t *testing.T) {
	for name, c := range map[string]struct {
		deadline string
		since    time.Time
		want     bool
	}{
		"passed":      {"2h", since.Add(-2 * time.Hour), true},
		"not yet":     {"2h", since.Add(-time.Hour), false},
		"no deadline": {"", since.Add(-2 * time.Hour), false},
		"no pods":     {"2h", time.Time{}, false},
	} {
		policy := evicting()
		policy.Spec.NotUpgradable.Deadline = c.deadline
		r := &recorded{view: &protocol.EvictionView{Since: c.since}}
		policy.Status.Evictions = r.status(t, policy, v1alpha1.SidecarSet{})
		assert.Equal(t, c.want, policy.Status.Evictions.Overdue, name)
		policy.Status.Evictions.Overdue = false
		r.view, r.err = nil, errors.New("Temporal does not respond")
		assert.Equal(t, c.want, r.status(t, policy, v1alpha1.SidecarSet{}).Overdue, name)
	}
}

// After a restore of Temporal, the view is older than the pause in status. After a resume, the view is newer
// than the pause in status. An older worker does not report the time of the resume.
func TestSpec13_5_ARestoredTemporalDoesNotEndAPause(t *testing.T) {
	for name, test := range map[string]struct {
		changed time.Time
		paused  bool
	}{
		"restored": {since.Add(-time.Hour), true}, "resumed": {since.Add(time.Minute), false}, "resumed in an older worker": {},
	} {
		policy := evicting()
		policy.Status.Evictions = &outriggerv1.EvictionStatus{Paused: true, PausedBy: "ann", PauseReason: "lunch", PausedAt: new(metav1.NewTime(since))}
		r := &recorded{view: &protocol.EvictionView{PauseChanged: test.changed}}
		status := r.status(t, policy, v1alpha1.SidecarSet{})
		assert.Equal(t, test.paused, status.Paused, name)
		assert.Equal(t, test.paused, r.view.HasLost(r.starts[0].View.Pause), name)
		if test.paused {
			assert.Equal(t, "ann lunch", status.PausedBy+" "+status.PauseReason, name)
			assert.True(t, status.PausedAt.Equal(policy.Status.Evictions.PausedAt), name)
		}
	}
}

func TestSpec8_8_AnOutageKeepsTheNamesOfTheSidecarSetsWithoutEvictions(t *testing.T) {
	r := &recorded{view: &protocol.EvictionView{Left: []string{"logs"}}}
	w := &Writer{evictions: r, metrics: NewMetrics(prometheus.NewRegistry()), left: map[types.UID][]string{}, woken: map[types.UID]wakeReasons{}}
	policies, sets := []outriggerv1.RolloutPolicy{*evicting()}, []v1alpha1.SidecarSet{{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}}
	evicted := func() map[string]bool {
		statuses := make([]outriggerv1.RolloutPolicyStatus, len(policies))
		w.readEvictions(t.Context(), map[string]appliedSets{"edge": {any: true}}, policies, statuses, since)
		evicting, err := evictingSets(sets, policies, statuses, w.left)
		require.NoError(t, err)
		return evicting
	}
	assert.Empty(t, evicted())
	r.view, r.err = nil, errors.New("Temporal does not respond")
	assert.Empty(t, evicted(), "the last view applies")
	policies[0].UID = "recreated"
	assert.Equal(t, map[string]bool{"logs": false}, evicted(), "the evictions of the recreated policy were not read")
	assert.Empty(t, w.left)
}

func TestSpec13_5_OutdatedPodsWakeTheRun(t *testing.T) {
	for reason, kind := range map[string]string{
		v1alpha1.ReasonPodsWithoutSidecar: v1alpha1.ConditionInjected, v1alpha1.ReasonNotUpgradablePods: v1alpha1.ConditionProgressing,
		v1alpha1.ReasonUnreadablePods: v1alpha1.ConditionDegraded,
	} {
		r := &recorded{view: &protocol.EvictionView{}}
		set := v1alpha1.SidecarSet{}
		set.Status.Conditions = []metav1.Condition{{Type: kind, Reason: reason}}
		r.status(t, evicting(), set)
		assert.True(t, r.woken, reason)
		set.DeletionTimestamp = &metav1.Time{Time: since}
		r.status(t, evicting(), set)
		assert.False(t, r.woken, "a finalizer may keep a deleted SidecarSet for days")
	}
}

// The view counts a pod that is never evicted as remaining. Nevertheless, the first outdated pods of another
// SidecarSet must wake the run.
func TestSpec13_5_TheFirstOutdatedPodsOfASidecarSetWakeTheRun(t *testing.T) {
	r := &recorded{view: &protocol.EvictionView{Remaining: 1}}
	w := &Writer{evictions: r, left: map[types.UID][]string{}, woken: map[types.UID]wakeReasons{}}
	woken := func(outdated ...types.UID) bool {
		_, err := w.evictionsOf(t.Context(), evicting(), appliedSets{any: true, outdated: outdated}, since)
		require.ErrorIs(t, err, r.err)
		return r.woken
	}
	assert.True(t, woken("a"), "the operator has just started")
	assert.False(t, woken("a"))
	r.err = errors.New("the signal failed")
	woken("a", "b")
	r.err = nil
	assert.True(t, woken("a", "b"))
	assert.False(t, woken("a", "b"))
	assert.False(t, woken("b"))
	assert.True(t, woken("a", "b"), "the pods of a are outdated again")
}

func TestSpec13_3_AChangeOfThePolicyWakesTheRunOnce(t *testing.T) {
	r := &recorded{view: &protocol.EvictionView{Remaining: 1}}
	w := &Writer{evictions: r, left: map[types.UID][]string{}, woken: map[types.UID]wakeReasons{}}
	policy := evicting()
	woken := func() bool {
		_, err := w.evictionsOf(t.Context(), policy, appliedSets{any: true}, since)
		require.ErrorIs(t, err, r.err)
		return r.woken
	}
	assert.True(t, woken(), "the policy may have changed while no operator was running")
	assert.False(t, woken())
	policy.Generation++
	r.err = errors.New("the signal failed")
	woken()
	r.err = nil
	assert.True(t, woken())
	assert.False(t, woken())
}
