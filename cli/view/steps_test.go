package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

// edge returns a policy with four steps.
func edge() *outriggerv1.RolloutPolicy {
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}
	policy.Spec.Steps = []outriggerv1.RolloutStep{
		{Name: "canary", UpTo: intstr.FromInt32(1), Bake: &metav1.Duration{Duration: 10 * time.Minute}},
		{UpTo: intstr.FromString("25%"), Approval: &outriggerv1.StepApproval{}},
		{UpTo: intstr.FromInt32(4), Bake: &metav1.Duration{Duration: time.Hour}, Approval: &outriggerv1.StepApproval{}},
		{UpTo: intstr.FromString("75%")},
	}
	return policy
}

// staged returns a rollout of four pods in the step index of the policy edge. The first index+1 pods are
// updated. reached is the time since the step was reached. If reached is negative, the step is not reached.
func staged(t *testing.T, index int, reached time.Duration) *Input {
	t.Helper()
	in := input(t)
	in.Now, in.Policy = noon, edge()
	in.Pods = nil
	for i, name := range []string{"a", "b", "c", "d"} {
		image := "agent:v1"
		if i <= index {
			image = "agent:v2"
		}
		in.Pods = append(in.Pods, pod(t, name, image))
	}
	s := &protocol.Stage{Generation: 2, Policy: "edge", Steps: 4, Index: index, Step: copyOf(&in.Policy.Spec.Steps[index])}
	if reached >= 0 {
		at := noon.Add(-reached)
		s.Reached = &at
	}
	in.Set.Status.Conditions = nil
	in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 2}
	stage.ToStatus(in.Set, s)
	return in
}

// listed returns the summary of the SidecarSet of an input. reason is the reason of Progressing.
func listed(in *Input, reason string) Summary {
	set := in.Set.DeepCopy()
	set.Status.MatchedPods, set.Status.UpdatedPods = 4, 1
	set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: "True", Reason: reason}}
	return NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Now: noon})[0]
}

func newRollout(t *testing.T, in *Input) *Rollout {
	t.Helper()
	r, err := NewRollout(in)
	require.NoError(t, err)
	return r
}

func newWhy(t *testing.T, in *Input) *RolloutWhy {
	t.Helper()
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	return why
}

func TestABakingRolloutShowsItsSteps(t *testing.T) {
	in := staged(t, 0, 5*time.Minute+48*time.Second)
	r := newRollout(t, in)
	golden(t, "rollout-baking", r.Text)
	golden(t, "why-baking", newWhy(t, in).Text)
	golden(t, "list-baking", Summaries{listed(in, v1alpha1.ReasonBaking)}.Text)
	assert.Equal(t, "Baking (step 1 of 4)", r.Headline, "the time left is no change of the headline")
	assert.Equal(t, "Baking (step 1 of 4)", listed(in, v1alpha1.ReasonBaking).Headline)
	assert.Equal(t, "sidecarset/logs: Baking (step 1 of 4), step 1 of 4 (canary) bakes until 2026-01-02T12:04:12Z; 1 of 4 pods updated, 1 of them ready; 3 to go, 0 unavailable of 2 allowed", r.Line())
	done, err := r.Done()
	require.NoError(t, err)
	assert.False(t, done, "a watch continues")
	_, err = NewRestart(in)
	require.ErrorContains(t, err, "the rollout is in progress")
}

func TestARolloutThatWaitsForApprovalNeedsAttention(t *testing.T) {
	in := staged(t, 1, time.Minute)
	in.Pods[1] = pod(t, "b", "agent:v1")
	r := newRollout(t, in)
	golden(t, "rollout-awaiting-approval", r.Text)
	golden(t, "why-awaiting-approval", newWhy(t, in).Text)
	one := listed(in, v1alpha1.ReasonAwaitingApproval)
	assert.Equal(t, r.Headline, one.Headline)
	assert.Equal(t, []string{"AwaitingApproval"}, one.Attention)
	assert.Contains(t, r.Line(), "; kubectl sidecarset approve logs")
	done, err := r.Done()
	require.NoError(t, err)
	assert.False(t, done, "a watch continues")
	assert.True(t, Unfinished(&v1alpha1.SidecarSet{Status: v1alpha1.SidecarSetStatus{
		MatchedPods: 4, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonAwaitingApproval}},
	}}))
}

// The commands status and list show the same headline even before the operator updates the condition.
func TestStatusAndListAgreeAboutTheEndOfABakeTime(t *testing.T) {
	for _, c := range []struct {
		index   int
		reached time.Duration
		want    string
	}{
		{0, 9 * time.Minute, "Baking (step 1 of 4)"},
		{0, 11 * time.Minute, "Progressing"},
		{2, 59 * time.Minute, "Baking (step 3 of 4)"},
		{2, 61 * time.Minute, "AwaitingApproval (step 3 of 4)"},
	} {
		in := staged(t, c.index, c.reached)
		assert.Equal(t, c.want, newRollout(t, in).Headline)
		assert.Equal(t, c.want, listed(in, v1alpha1.ReasonBaking).Headline)
	}
}

func TestTheStateOfEachStep(t *testing.T) {
	lines := func(in *Input) []string {
		r := newRollout(t, in)
		return r.stepLines(Style{Now: noon})[1:]
	}
	paused := func(in *Input) *Input {
		in.Set.Status.Rollout.Pause = &v1alpha1.RolloutPause{By: "ann"}
		return in
	}
	approved := staged(t, 2, time.Minute)
	approved.Set.Status.Rollout.Stage.ApprovedBy = &v1alpha1.StepApproval{By: "ann", Reason: "fine"}
	upgrading := staged(t, 1, -1)
	upgrading.Pods[1] = pod(t, "b", "agent:v2", written(t, time.Second, ""))
	for want, in := range map[string]*Input{
		"● step 2: upgrading (up to 25% of the pods, needs approval)":                                 upgrading,
		"● step 2: paused (up to 25% of the pods, needs approval)":                                    paused(staged(t, 1, -1)),
		"● step 1 (canary): baking, 9m left (up to 1 pod, bakes 10m)":                                 paused(staged(t, 0, time.Minute)),
		"● step 3: baking, 59m left, approved by ann: fine (up to 4 pods, bakes 60m, needs approval)": approved,
		"✔ step 1 (canary): up to 1 pod, bakes 10m":                                                   staged(t, 1, -1),
		"○ step 3: up to 4 pods, bakes 60m, needs approval":                                           staged(t, 1, -1),
		"○ all remaining pods": staged(t, 1, -1),
	} {
		assert.Contains(t, lines(in), want)
	}
}

func TestWithoutThePolicyOnlyTheCurrentStepIsShown(t *testing.T) {
	in := staged(t, 0, time.Minute)
	in.Policy = nil
	assert.Contains(t, newRollout(t, in).Text(Style{Now: noon}), "\nStep:      1 of 4, RolloutPolicy edge\n           ● step 1 (canary): baking, 9m left (up to 1 pod, bakes 10m)\nRun: ")

	in = staged(t, 2, -1)
	in.Policy.Spec.Steps = in.Policy.Spec.Steps[:1]
	assert.Equal(t, []string{"✔ step 1 (canary): up to 1 pod, bakes 10m", "● step 3: upgrading (up to 4 pods, bakes 60m, needs approval)"},
		newRollout(t, in).stepLines(Style{Now: noon})[1:], "the policy is shorter now")
}

func TestALimitOfFailedPodsAddsAStepForAllPods(t *testing.T) {
	in := staged(t, 0, -1)
	in.Policy.Spec.Failure = &outriggerv1.RolloutFailure{MaxFailedPods: intstr.FromString("2%")}
	in.Set.Status.Rollout.Stage.MaxFailedPods, in.Set.Status.Rollout.Stage.Steps = new(intstr.FromString("2%")), 5
	in.Set.Status.Rollout.Stage.MaxUnavailablePerOwner = 1
	lines := newRollout(t, in).stepLines(Style{Now: noon})
	assert.Equal(t, []string{"1 of 5, RolloutPolicy edge, at most 2% failed pods, at most 1 unavailable of each owner", "○ step 5: all pods"}, []string{lines[0], lines[len(lines)-1]})
}

func TestAfterTheLastStepTheRemainingPodsAreUpgraded(t *testing.T) {
	in := staged(t, 0, time.Minute)
	in.Set.Status.Rollout.Stage.Done = true
	r := newRollout(t, in)
	assert.Equal(t, "Progressing", r.Headline)
	lines := r.stepLines(Style{Now: noon})
	assert.Equal(t, []string{"all ended, RolloutPolicy edge", "● all remaining pods"}, []string{lines[0], lines[len(lines)-1]})

	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2")}
	assert.NotContains(t, newRollout(t, in).Text(Style{Now: noon}), "Step:", "the rollout has ended")
}

// The run receives an approval before the operator writes the approval into the status.
func TestTheStageOfTheRunIsNewerThanStatus(t *testing.T) {
	in := staged(t, 1, time.Minute)
	in.Run.Status = &protocol.RolloutStatus{Generation: 2, Phase: protocol.PhaseProgressing, Stage: &protocol.Stage{Generation: 2, Policy: "edge", Steps: 4, Index: 2}}
	r := newRollout(t, in)
	assert.Equal(t, "Progressing", r.Headline)
	assert.Equal(t, StepUpgrading, r.Steps[2].State)
	assert.Equal(t, "4", r.Steps[2].UpTo, "the definition is in the policy until the run reads it")

	in.Run.Status.Generation = 1
	assert.Equal(t, "AwaitingApproval (step 2 of 4)", newRollout(t, in).Headline, "a run of another generation")
}

func TestARunThatDoesNotRespondComesBeforeItsStep(t *testing.T) {
	in := staged(t, 1, time.Minute)
	in.Run = RunInput{Unknown: "u", NotResponding: true}
	r := newRollout(t, in)
	assert.Equal(t, "Waiting (the run does not respond)", r.Headline)
	assert.Contains(t, r.Text(Style{Now: noon}), "\nNext:      kubectl sidecarset check\n")
}

func TestABakeTimeIsKnownWithoutTemporal(t *testing.T) {
	in := staged(t, 0, time.Minute)
	in.Run = RunInput{Unknown: "u", Unreachable: true}
	r := newRollout(t, in)
	assert.Equal(t, "Baking (step 1 of 4)", r.Headline)
	assert.Contains(t, r.Text(Style{Now: noon}), "\nNext:      kubectl sidecarset check\n")
}

func TestAFailingPodDuringABakeTimeIsAReasonToGoBack(t *testing.T) {
	in := staged(t, 0, time.Minute)
	in.Pods[0] = pod(t, "a", "agent:v2", written(t, time.Minute, "ErrImagePull"))
	assert.Contains(t, newRollout(t, in).Text(Style{Now: noon}), "\nNext:      go back: kubectl sidecarset undo logs; end the bake time: kubectl sidecarset promote logs\n")
}

func TestSpec11_11_StatusShowsTheLimitThatTheRunWaitsFor(t *testing.T) {
	const message = "1 of 4 pods updated; default/b waits for PodDisruptionBudget default/web (2 healthy, 2 needed)"
	in := staged(t, 0, -1)
	current := stage.OfStatus(in.Set)
	current.Step.UpTo, current.Step.RespectBudgets = intstr.FromString("100%"), true
	current.Step.Domains = &protocol.Domains{TopologyKey: "zone", MaxUnavailable: 1}
	stage.ToStatus(in.Set, current)
	require.Equal(t, protocol.PhaseProgressing, newRollout(t, in).Phase, "the view does not know the budgets")
	in.Run.Status = &protocol.RolloutStatus{Generation: 2, Phase: protocol.PhaseWaiting, Message: message, Stage: current}
	r := newRollout(t, in)
	assert.Equal(t, protocol.PhaseWaiting, r.Phase)
	assert.Equal(t, message, r.Message)
	assert.Equal(t, "1 of 4, RolloutPolicy edge, unavailable in at most 1 of the domains zone, within PodDisruptionBudgets", r.stepLines(Style{})[0])
	in.Run.Status.Generation = 1
	assert.Equal(t, protocol.PhaseProgressing, newRollout(t, in).Phase, "a run of another generation")
}

// A view computes its plan without nodes and PodDisruptionBudgets. Therefore, the output contains the message
// of the run.
func TestALimitOfThePolicyIsNamedByTheRun(t *testing.T) {
	const message = "1 of 4 pods updated, 1 of them ready; 3 to go, 0 unavailable of 1 allowed; waiting for PodDisruptionBudget web (3 healthy, 3 needed)"
	in := staged(t, 0, -1)
	in.Policy.Spec.Steps[0].UpTo, in.Set.Status.Rollout.Stage.UpTo = intstr.FromInt32(4), new(intstr.FromInt32(4))
	in.Run.Status = &protocol.RolloutStatus{Generation: 2, Phase: protocol.PhaseWaiting, Message: message, Stage: StageOf(in.Set, nil)}
	in.Run.Status.Stage.Step.RespectBudgets = true
	assert.Contains(t, newWhy(t, in).Text(Style{Now: noon}), message)
	assert.Contains(t, newRollout(t, in).Line(), message)

	in.Run.Status.Generation = 1
	assert.NotContains(t, newWhy(t, in).Text(Style{Now: noon}), "PodDisruptionBudget", "a run of another generation")
}
