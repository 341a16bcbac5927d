package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func withDeadline(upTo string) *protocol.Stage {
	return &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString(upTo), MaxFailed: ptr(intstr.FromString("100%")), ProgressDeadline: 30 * time.Minute}}
}

func TestSpec11_6_WhenTheProgressDeadlineApplies(t *testing.T) {
	done := withDeadline("100%")
	done.Done = true
	quarantined := withDeadline("100%")
	quarantined.Quarantine = &protocol.Quarantine{}
	without := withDeadline("100%")
	without.Step.ProgressDeadline = 0
	paused := func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Paused = true }
	for _, c := range []struct {
		name   string
		stage  *protocol.Stage
		change func(*v1alpha1.SidecarSetUpdateStrategy)
		pods   []podstate.State
		due    bool
	}{
		{"pods can be upgraded", withDeadline("100%"), nil, []podstate.State{updated, old}, true},
		{"upgraded pods occupy the slots", withDeadline("100%"), nil, []podstate.State{restart, old}, true},
		{"the last upgraded pods are not ready", withDeadline("100%"), nil, []podstate.State{updated, restart}, true},
		{"a step waits for its pods", withDeadline("50%"), nil, []podstate.State{restart, old}, true},
		{"pods of an earlier version occupy the slots", withDeadline("100%"), nil, []podstate.State{previous, old}, false},
		{"the other pod waits for its earlier upgrade, and slots are open", withDeadline("100%"), func(s *v1alpha1.SidecarSetUpdateStrategy) {
			s.MaxUnavailable = ptr(intstr.FromInt32(9))
		}, []podstate.State{previous, updated}, false},
		{"the partition keeps the pod that does not wait", withDeadline("100%"), func(s *v1alpha1.SidecarSetUpdateStrategy) {
			s.MaxUnavailable, s.Partition = ptr(intstr.FromInt32(9)), ptr(intstr.FromInt32(1))
		}, []podstate.State{previous, old}, false},
		{"a reached step bakes or waits for its approval", withDeadline("50%"), nil, []podstate.State{updated, old}, false},
		{"nothing remains", withDeadline("100%"), nil, []podstate.State{updated, updated}, false},
		{"the spec is paused", withDeadline("100%"), paused, []podstate.State{restart, old}, false},
		{"the spec is paused, and no pod is left to upgrade", withDeadline("100%"), paused, []podstate.State{updated, restart}, false},
		{"promoted fully", done, nil, []podstate.State{restart, old}, false},
		{"a rollback", quarantined, nil, []podstate.State{restart, old}, false},
		{"no deadline", without, nil, []podstate.State{restart, old}, false},
		{"no policy", nil, nil, []podstate.State{restart, old}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := unavailable(intstr.FromInt32(1))
			if c.change != nil {
				c.change(&set.Spec.UpdateStrategy)
			}
			pods := matched(c.pods...)
			plan, err := NextInStage(set, pods, nil, c.stage)
			require.NoError(t, err)
			assert.Equal(t, c.due, ProgressDue(set, &plan, c.stage))
			failure := Overdue(set, pods, &plan, c.stage, &protocol.Stall{Ready: plan.Counts.UpdatedReady})
			assert.Equal(t, c.due, failure != nil)
		})
	}
}

func TestSpec11_6_TheReasonOfAMissedDeadlineNamesUnreadyPods(t *testing.T) {
	set := unavailable(intstr.FromInt32(5))
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "new"}
	set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: "logs-1", Hash: "old", ResourceVersion: "7"}}
	pods := matched(restart, updated, restart, restart, restart, old)
	stage := withDeadline("100%")
	plan, err := NextInStage(set, pods, nil, stage)
	require.NoError(t, err)
	reason := "no pod became updated and ready within 30m (progressDeadline); upgraded pods that are not ready: 4, such as d/a, d/c, d/d"
	assert.Equal(t, &protocol.Failure{Overdue: true, Reason: reason}, Overdue(set, pods, &plan, stage, &protocol.Stall{Ready: 1}))
	assert.Nil(t, Overdue(set, pods, &plan, stage, nil), "the deadline is not over")
	assert.Nil(t, Overdue(set, pods, &plan, stage, &protocol.Stall{Ready: 0}), "a pod became ready meanwhile")

	stage.Step.Rollback = true
	failure := Overdue(set, pods, &plan, stage, &protocol.Stall{Ready: 1})
	assert.Equal(t, &protocol.Quarantine{Hash: "new", Revision: "logs-1", Reason: reason}, failure.Quarantine)

	pods = matched(updated, old, old)
	plan, err = NextInStage(set, pods, nil, stage)
	require.NoError(t, err)
	assert.Contains(t, Overdue(set, pods, &plan, stage, &protocol.Stall{Ready: 1}).Reason, "no upgraded pod is unavailable, and 2 pods are to go")
}
