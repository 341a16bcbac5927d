package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/stage"
)

func inStage(s protocol.Stage) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) {
		s.Generation = set.Generation
		set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation}
		stage.ToStatus(set, &s)
	}
}

func TestARolloutWithoutACurrentStepHasNothingToApprove(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.SidecarSet){
		"generation 1 has not begun (kubectl sidecarset status logs)": func(*v1alpha1.SidecarSet) {},
		"it has no steps: no RolloutPolicy selects the SidecarSet (kubectl get rolloutpolicies), or the first step has not begun (kubectl sidecarset status logs)": func(s *v1alpha1.SidecarSet) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 1}
		},
		"all its steps have ended (kubectl sidecarset status logs)": inStage(protocol.Stage{Policy: "edge", Steps: 2, Done: true}),
		"generation 2 has not begun (kubectl sidecarset status logs)": func(s *v1alpha1.SidecarSet) {
			inStage(protocol.Stage{Policy: "edge", Steps: 2})(s)
			s.Generation = 2
		},
	} {
		set := sidecarSet(t, "logs", change)
		_, err := currentStep(set, view.StageOf(set, nil))
		require.EqualError(t, err, want)
	}
	aborted := sidecarSet(t, "logs", inStage(protocol.Stage{Policy: "none"}))
	_, err := currentStep(aborted, &protocol.Stage{})
	require.ErrorContains(t, err, "it has no steps")
	s := newTestCluster(t, sidecarSet(t, "logs"))
	require.EqualError(t, s.run("approve", "mesh").err, `there is no SidecarSet "mesh"; SidecarSets: logs`)
	for _, step := range []string{"-1", "4294967297"} {
		require.EqualError(t, s.run("promote", "logs", "--step="+step).err, "--step must be between 1 and 2147483647, or 0 for the current step")
	}
}

func TestTheErrorOfAnApprovalHasItsRemedy(t *testing.T) {
	request := protocol.StepRequest{Generation: 3, Step: 1}
	for _, c := range []struct {
		update string
		err    error
		want   string
	}{
		{protocol.ApproveUpdate, errUnread, unread + "; the approval may still take effect once a worker runs, but only for step 2 of generation 3; to repeat it: kubectl sidecarset approve logs --step 2"},
		{protocol.PromoteUpdate, errUnread, unread + "; the promotion may still take effect once a worker runs, but only for step 2 of generation 3; to repeat it: kubectl sidecarset promote logs --step 2"},
		{protocol.AbortUpdate, errUnread, unread + "; the abort may still take effect once a worker runs, but only for generation 3"},
		{protocol.RetryUpdate, errUnread, unread + "; the retry may still take effect once a worker runs, but only for generation 3"},
		{protocol.ApproveUpdate, serviceerror.NewNotFound("x"), "no run is open, because no pod is left to upgrade; kubectl sidecarset status logs; if the operator uses another Temporal than " +
			strings.TrimPrefix(here, "Temporal at ") + ", " + otherTemporal},
		{protocol.ApproveUpdate, sdk.NewApplicationError("the request is for step 2, and the current step is step 3 of 4", ""),
			"the request is for step 2, and the current step is step 3 of 4 (kubectl sidecarset status logs)"},
		{protocol.PromoteUpdate, serviceerror.NewUnavailable("x"), here + ": no answer (check the server, the network and --temporal-tls, or correct --temporal-address or TEMPORAL_ADDRESS)"},
	} {
		require.EqualError(t, localRuns.explainStep(sidecarSet(t, "logs"), c.update, request, c.err), c.want)
	}
	request.Full = true
	require.EqualError(t, localRuns.explainStep(sidecarSet(t, "logs"), protocol.PromoteUpdate, request, errUnread),
		unread+"; the promotion of all steps may still take effect once a worker runs, but only for generation 3; to repeat it: kubectl sidecarset promote logs --full")
}

func TestTheAnswerNamesWhatTheRolloutWaitsFor(t *testing.T) {
	step := &protocol.Step{UpTo: intstr.FromInt32(1), Bake: 10 * time.Minute, Approval: true}
	reached := noon.Add(-time.Minute)
	for want, s := range map[string]*protocol.Stage{
		"the rollout continues after the bake time, 9m left (end the bake time: kubectl sidecarset promote logs)":   {Step: step, Reached: &reached},
		"the rollout continues once the pods of the step are updated and ready, and the bake time of 10m has ended": {Step: step},
		"the rollout continues once the pods of the step are updated and ready":                                     {Step: &protocol.Step{Approval: true}},
		"": {Step: &protocol.Step{Approval: true}, Reached: &reached},
	} {
		assert.Equal(t, want, view.Continues("logs", s, noon))
	}
	paused := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) {
		s.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
	})
	answer := stepAnswer{Name: "logs", StepResult: protocol.StepResult{Message: "step 1 of 2 is approved"}, next: nextOfRollout(paused)}
	assert.Equal(t, "sidecarset/logs: step 1 of 2 is approved\npaused: by ann (kubectl sidecarset resume logs)\n", answer.Text(view.Style{}))
}

func TestTheNextStepNamesAFreeze(t *testing.T) {
	frozen := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) {
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonFrozen, Message: "frozen by RolloutFreeze x: sales; 0 of 1 pods updated, 0 of them ready"}}
	})
	const want = "frozen by RolloutFreeze x: sales (kubectl sidecarset unfreeze x)"
	assert.Equal(t, []string{want}, nextOfRollout(frozen))
	s := newTestCluster(t, frozen)
	c := &cluster{Reader: s.Client, live: s.Client}
	for request, ended := range map[string]bool{protocol.AbortUpdate: true, protocol.PromoteUpdate: false, protocol.ApproveUpdate: false, "permit": false} {
		after := frozen.DeepCopy()
		c.withoutEnded(t.Context(), after, request, true, noon)
		assert.Equal(t, ended, view.Frozen(after) == "", request)
	}
	require.NoError(t, s.Client.Create(t.Context(), &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: outriggerv1.RolloutFreezeSpec{AllowRollback: new(false)}}))
	after := frozen.DeepCopy()
	c.withoutEnded(t.Context(), after, protocol.AbortUpdate, false, noon)
	assert.NotEmpty(t, view.Frozen(after), "the freeze also stops rollbacks")
	require.ErrorContains(t, s.run("resume", "logs", "--temporal-payload-key-dir=", "--temporal-address=127.0.0.1:1").err, "; SidecarSet logs is frozen by RolloutFreeze x: sales (kubectl sidecarset --temporal-address=127.0.0.1:1 unfreeze x)")
}

func TestTheNextStepLeavesOutWhatTheRequestEnds(t *testing.T) {
	next, c := []string{"next: kubectl sidecarset status logs --watch"}, &cluster{}
	for reason, ends := range map[string]struct {
		request string
		full    bool
	}{v1alpha1.ReasonAwaitingPermit: {request: "permit"}, v1alpha1.ReasonOutsideWindow: {protocol.PromoteUpdate, true}} {
		set := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) {
			s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: reason, Message: "frozen"}}
		})
		c.withoutEnded(t.Context(), set, protocol.PromoteUpdate, false, noon)
		require.NotEqual(t, next, nextOfRollout(set))
		c.withoutEnded(t.Context(), set, ends.request, ends.full, noon)
		assert.Equal(t, next, nextOfRollout(set))
	}
	paused := func(by string, gates ...protocol.GateState) *v1alpha1.SidecarSet {
		step := &protocol.Step{Gates: []outriggerv1.RolloutGate{{Name: "errors"}}}
		return sidecarSet(t, "logs", inStage(protocol.Stage{Policy: "web", Step: step, Steps: 1, Gates: gates}), func(s *v1alpha1.SidecarSet) {
			s.Status.Rollout.Pause = &v1alpha1.RolloutPause{By: by}
		})
	}
	inconclusive := protocol.GateState{Name: "errors", Phase: protocol.GateInconclusive}
	assert.True(t, endsPause(outriggerv1.VerbPromote, paused("RolloutPolicy web", inconclusive)))
	assert.False(t, endsPause(outriggerv1.VerbPromote, paused("RolloutPolicy web")), "failed pods")
	assert.False(t, endsPause(outriggerv1.VerbPromote, paused("ann", inconclusive)))
	assert.False(t, endsPause(outriggerv1.VerbApprove, paused("ann")))
	assert.True(t, endsPause(outriggerv1.VerbResume, paused("ann")))
}

func TestTheHistoryNamesTheActionAndItsReason(t *testing.T) {
	request := protocol.StepRequest{Approval: protocol.Approval{Reason: "errors"}, Step: 1}
	for action, want := range map[string][2]string{
		protocol.ApproveUpdate: {"approved", "step 2: errors"}, protocol.PromoteUpdate: {"promoted", "step 2: errors"},
		protocol.AbortUpdate: {"aborted", "errors"}, protocol.RetryUpdate: {"retried", "errors"},
	} {
		assert.Equal(t, want, [2]string{pastOf(action), detailsOf(action, request, nil)}, action)
	}
	assert.Empty(t, detailsOf(protocol.AbortUpdate, protocol.StepRequest{}, errUnread))
}
