package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

func TestARolledBackRolloutNamesTheRetry(t *testing.T) {
	for _, reason := range []string{v1alpha1.ReasonRollingBack, v1alpha1.ReasonQuarantined} {
		in := staged(t, 0, time.Minute)
		in.Set.Status.ObservedGeneration = in.Set.Generation
		in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: reason, Message: "rolled back: 3 pods failed"}}
		r := newRollout(t, in)
		assert.Equal(t, reason, r.Headline)
		assert.Equal(t, reason, listed(in, reason).Headline)
		next := map[string]string{
			v1alpha1.ReasonRollingBack: "kubectl sidecarset status logs --watch",
			v1alpha1.ReasonQuarantined: "apply other content, or retry this content: kubectl sidecarset retry logs",
		}
		assert.Equal(t, []string{next[reason]}, r.next(in.Now))
		assert.Contains(t, r.Text(Style{}), "\nRollback:  rolled back: 3 pods failed\n")
		assert.NotContains(t, r.Text(Style{}), "\nStep:", "nothing is upgraded")
		assert.Contains(t, newWhy(t, in).Text(Style{}), "rolled back: 3 pods failed (kubectl sidecarset retry logs)")
		done, err := r.Done()
		assert.Equal(t, reason == v1alpha1.ReasonQuarantined, done, "a watch continues until all pods are rolled back")
		if done {
			require.EqualError(t, err, "the rollout ended, and its pods were rolled back; try the content again: kubectl sidecarset retry logs")
			assert.False(t, r.RunEnds(), "its run waits for a retry")
		}
		r.retried = true
		done, err = r.Done()
		require.NoError(t, err)
		assert.False(t, done, "a retry has begun")
		assert.True(t, Unfinished(in.Set))
	}
}

func TestThePlanOfQuarantinedContentNamesTheRetry(t *testing.T) {
	in := staged(t, 0, -1)
	plan := &Plan{}
	old := rollout.Pod{Pod: in.Pods[0], State: podstate.State{Upgradable: true}}
	plan.addStaying(&PlanInput{Input: *in}, []rollout.Pod{old}, &rollout.Plan{Phase: protocol.PhaseQuarantined})
	require.Len(t, plan.Stay, 1)
	assert.Equal(t, "the content is quarantined (kubectl sidecarset retry logs)", plan.Stay[0].Reason)
}

func TestARollbackIsPlannedFromThePods(t *testing.T) {
	// The status may be older than the run and the pods, because the operator writes the status later.
	for _, written := range []string{v1alpha1.ReasonRolloutProgress, v1alpha1.ReasonRollingBack, v1alpha1.ReasonQuarantined} {
		in := staged(t, 0, -1) // One of four pods has the new content.
		in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: "True", Reason: written, Message: "earlier"}}
		s := *StageOf(in.Set, nil)
		s.Quarantine = &protocol.Quarantine{Hash: in.Set.Annotations[v1alpha1.HashAnnotation], Revision: in.Revisions[0].Name, Reason: "3 pods failed"}
		in.Run.Status = &protocol.RolloutStatus{Generation: in.Set.Generation, Stage: &s}
		r := newRollout(t, in)
		assert.Equal(t, v1alpha1.ReasonRollingBack, r.Headline, written)
		assert.Contains(t, r.Text(Style{}), "1 of 4 updated, 1 of them ready, 1 to go", written)
		assert.Contains(t, r.Message, "1 to go", written)
		done, err := r.Done()
		require.NoError(t, err)
		assert.False(t, done)

		in.Pods[0] = pod(t, "a", "agent:v1")
		r = newRollout(t, in)
		assert.Equal(t, v1alpha1.ReasonQuarantined, r.Headline, written)
		assert.Contains(t, r.Message, "rolled back to revision "+in.Revisions[0].Name+": 3 pods failed", written)

		in.Run.Status.Stage.Quarantine = nil
		assert.Equal(t, string(protocol.PhaseProgressing), newRollout(t, in).Headline, "%s: a retry has begun", written)
	}
}

func TestAFrozenRollbackIsShownAsFrozen(t *testing.T) {
	in := staged(t, 0, -1) // One of four pods has the new content.
	in.Set.Status.ObservedGeneration = in.Set.Generation
	in.Set.Status.Rollout.Quarantine = &v1alpha1.RolloutQuarantine{Hash: in.Set.Annotations[v1alpha1.HashAnnotation], Revision: in.Revisions[0].Name, Reason: "3 pods failed"}
	in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonFrozen, Message: "frozen by RolloutFreeze stop: incident; 3 of 4 pods updated, 3 of them ready"}}
	r := newRollout(t, in)
	assert.Equal(t, "Frozen", r.Headline)
	assert.Equal(t, "Frozen", listed(in, v1alpha1.ReasonFrozen).Headline)
	assert.Equal(t, 1, r.Counts.Remaining)
	shown := r.Text(Style{})
	assert.Contains(t, shown, "\nFrozen:    by RolloutFreeze stop: incident\n")
	assert.NotContains(t, shown, "\nStep:", "the rollback ignores the steps")
	assert.Contains(t, r.next(in.Now), "kubectl sidecarset unfreeze stop")
	assert.Contains(t, newWhy(t, in).Text(Style{}), "frozen by RolloutFreeze stop: incident (kubectl sidecarset unfreeze stop)")
	done, err := r.Done()
	require.NoError(t, err)
	assert.False(t, done)

	in.Pods[0] = pod(t, "a", "agent:v1")
	assert.Equal(t, v1alpha1.ReasonQuarantined, newRollout(t, in).Headline, "no pod is left to roll back")
}
