package action

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func created() time.Time { return time.Unix(10_000, 0) }

func example(verb outriggerv1.RolloutVerb) (*outriggerv1.RolloutAction, *v1alpha1.SidecarSet, Run) {
	a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{UID: "a", CreationTimestamp: metav1.NewTime(created())}}
	a.Spec = outriggerv1.RolloutActionSpec{SidecarSet: "logs", Verb: verb, RequestedBy: "ann", Reason: "why"}
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "s", Generation: 3}}
	stage := &protocol.Stage{Generation: 3, Steps: 4, Index: 1, Step: &protocol.Step{Name: "half", UpTo: intstr.FromString("50%")}}
	return a, set, Run{Open: true, Generation: 3, Stage: stage}
}

func TestSpec11_13_AnActionThatIsNotCarriedOutExpires(t *testing.T) {
	a, set, _ := example(outriggerv1.VerbPause)
	a.Status.Message = "no worker"
	assert.Empty(t, Refused(a, set, created().Add(lifetime-time.Nanosecond)))
	assert.Equal(t, "expired: not carried out within 10 minutes: no worker; create the action again", Refused(a, set, created().Add(lifetime)))
	_, late := Request(a, "h", created().Add(lifetime-time.Second))
	assert.Equal(t, created().Add(lifetime).UTC(), late.(protocol.Pause).NotAfter, "the run accepts no action after its end")
	_, early := Request(a, "h", created())
	assert.Equal(t, created().Add(attempt).UTC(), early.(protocol.Pause).NotAfter)
}

func TestSpec11_13_AnActionForAnotherSidecarSetIsRefused(t *testing.T) {
	for want, change := range map[string]func(*outriggerv1.RolloutAction, *v1alpha1.SidecarSet){
		"": func(*outriggerv1.RolloutAction, *v1alpha1.SidecarSet) {},
		"spec.requestedBy is empty, because webhook rolloutactions.outrigger.io was not called; apply config/webhook, and create the action again": func(a *outriggerv1.RolloutAction, _ *v1alpha1.SidecarSet) {
			a.Spec.RequestedBy = ""
		},
		"SidecarSet logs was deleted and created again; create the action again": func(a *outriggerv1.RolloutAction, _ *v1alpha1.SidecarSet) {
			a.Status.Target = &outriggerv1.RolloutActionTarget{UID: "earlier"}
		},
		"SidecarSet logs has changed from generation 2 to 3 since the action was sent; create the action again": func(a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet) {
			a.Status.Target = &outriggerv1.RolloutActionTarget{UID: set.UID, Generation: 2}
		},
		"the action is for generation 2, but SidecarSet logs has generation 3; create the action again with the generation of the SidecarSet": func(a *outriggerv1.RolloutAction, _ *v1alpha1.SidecarSet) {
			a.Spec.Generation = 2
		},
	} {
		a, set, _ := example(outriggerv1.VerbAbort)
		change(a, set)
		assert.Equal(t, want, Refused(a, set, created()))
	}
	a, _, _ := example(outriggerv1.VerbAbort)
	assert.Equal(t, "SidecarSet logs does not exist; kubectl get sidecarsets lists the SidecarSets", Refused(a, nil, created()))
}

func TestSpec12_6_APermitIsForARolloutThatWaitsForOne(t *testing.T) {
	for reason, want := range map[string][]string{
		v1alpha1.ReasonAwaitingPermit: {"", ""},
		v1alpha1.ReasonPaused:         {"", "the rollout does not wait for a permit of a fleet (kubectl sidecarset status logs)"},
		"":                            {"the operator has not described the rollout yet (kubectl sidecarset status logs)", ""},
	} {
		a, set, run := example(outriggerv1.VerbPermit)
		if reason != "" {
			set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: reason, ObservedGeneration: 3}}
		}
		target, wait, rejected := Target(a, set, run)
		assert.Equal(t, want, []string{wait, rejected}, reason)
		a.Status.Target = target
		update, payload := Request(a, "h", created())
		assert.Equal(t, protocol.PermitUpdate, update)
		assert.Equal(t, protocol.Permit{Hash: "h", By: "ann", Reason: "why", NotAfter: created().Add(attempt).UTC()}, payload)
	}
}

func TestSpec11_13_AnActionIsForOneStepOfOneGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		verb           outriggerv1.RolloutVerb
		change         func(*outriggerv1.RolloutAction, *Run)
		step           int32
		wait, rejected string
	}{
		"the current step": {verb: outriggerv1.VerbApprove, step: 2},
		"its name": {verb: outriggerv1.VerbPromote, step: 2, change: func(a *outriggerv1.RolloutAction, _ *Run) {
			a.Spec.Step = new(intstr.FromString("half"))
		}},
		"its number": {verb: outriggerv1.VerbApprove, step: 2, change: func(a *outriggerv1.RolloutAction, _ *Run) {
			a.Spec.Step = new(intstr.FromInt32(2))
		}},
		"another number": {verb: outriggerv1.VerbApprove, change: func(a *outriggerv1.RolloutAction, _ *Run) {
			a.Spec.Step = new(intstr.FromInt32(3))
		}, rejected: "the action is for step 3, and the current step is step 2 of 4 (half) (kubectl sidecarset status logs)"},
		"a rollback":  {verb: outriggerv1.VerbAbort},
		"a pause":     {verb: outriggerv1.VerbPause, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Generation = 2 }},
		"too early":   {verb: outriggerv1.VerbRetry, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Generation = 2 }, wait: "the rollout of generation 3 has not begun (kubectl sidecarset status logs)"},
		"no step yet": {verb: outriggerv1.VerbApprove, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Stage.Step = nil }, wait: "step 2 of 4 has not begun (kubectl sidecarset status logs)"},
		"no plan yet": {verb: outriggerv1.VerbPromote, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Stage = &protocol.Stage{Generation: 3} }, wait: "the first step has not begun (kubectl sidecarset status logs)"},
		"the end":     {verb: outriggerv1.VerbApprove, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Stage.Done = true }, rejected: "all steps of the rollout have ended (kubectl sidecarset status logs)"},
		"rolled back": {verb: outriggerv1.VerbApprove, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Stage.Quarantine = &protocol.Quarantine{} },
			rejected: "the rollout of generation 3 is rolled back; start it again with verb retry"},
		"no steps": {verb: outriggerv1.VerbApprove, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Stage = nil },
			rejected: "the rollout has no steps: no RolloutPolicy selects the SidecarSet (kubectl get rolloutpolicies), or the first step has not begun (kubectl sidecarset status logs)"},
		"no run": {verb: outriggerv1.VerbPause, change: func(_ *outriggerv1.RolloutAction, run *Run) { run.Open = false },
			wait: `the SidecarSet has no open run: all pods that can be upgraded are, the run has not started, or Temporal has lost the run; spec.updateStrategy.paused pauses the next run: kubectl patch sidecarset logs --type=merge -p '{"spec":{"updateStrategy":{"paused":true}}}'`},
	} {
		a, set, run := example(c.verb)
		if c.change != nil {
			c.change(a, &run)
		}
		target, wait, rejected := Target(a, set, run)
		assert.Equal(t, []string{c.wait, c.rejected}, []string{wait, rejected}, name)
		if wait == "" && rejected == "" {
			assert.Equal(t, &outriggerv1.RolloutActionTarget{UID: "s", Generation: 3, Step: c.step}, target, name)
		}
	}
}

// After a rollout has ended, the next run is for other content, which the user has not seen. If Temporal loses
// a run, the operator starts another run for the same content.
func TestSpec11_13_AnActionWaitsForALostRunAndNotForLaterContent(t *testing.T) {
	const inProgress = v1alpha1.ReasonRolloutProgress
	for name, c := range map[string]struct {
		recorded int64 // status.rollout.generation
		reason   string
		run      Run
		rejected bool
	}{
		"the run has not started":           {recorded: 2, reason: inProgress, run: Run{Completed: true, Generation: 2}},
		"the run has completed":             {recorded: 3, reason: inProgress, run: Run{Completed: true, Generation: 3}, rejected: true},
		"a run without generation":          {recorded: 3, reason: inProgress, run: Run{Completed: true}, rejected: true},
		"an earlier run after a restore":    {recorded: 3, reason: inProgress, run: Run{Completed: true, Generation: 2}},
		"Temporal has lost the run":         {recorded: 3, reason: inProgress},
		"the run was terminated":            {recorded: 3, reason: inProgress, run: Run{Generation: 3}},
		"a paused run is lost":              {recorded: 3, reason: v1alpha1.ReasonPaused},
		"a run without a permit is lost":    {recorded: 3, reason: v1alpha1.ReasonAwaitingPermit},
		"a run with a quarantine is lost":   {recorded: 3, reason: v1alpha1.ReasonQuarantined},
		"the run is lost before conditions": {recorded: 3},
		"the run is lost after the end":     {recorded: 3, reason: v1alpha1.ReasonRolloutComplete, rejected: true},
		"the partition is reached":          {recorded: 3, reason: v1alpha1.ReasonPartitionReached, rejected: true},
		"only other pods are left":          {recorded: 3, reason: v1alpha1.ReasonNotUpgradablePods, rejected: true},
		"upgrades are off":                  {recorded: 3, reason: v1alpha1.ReasonNotUpdate, rejected: true},
	} {
		for _, verb := range []outriggerv1.RolloutVerb{outriggerv1.VerbApprove, outriggerv1.VerbAbort, outriggerv1.VerbRetry, outriggerv1.VerbPermit} {
			a, set, _ := example(verb)
			set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: c.recorded}
			if c.reason != "" {
				set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: c.reason, ObservedGeneration: set.Generation}}
			}
			_, wait, rejected := Target(a, set, c.run)
			assert.Equal(t, c.rejected, rejected != "", "%s: %s", name, verb)
			assert.Equal(t, !c.rejected, wait != "", "%s: %s", name, verb)
			assert.Contains(t, wait+rejected, "the SidecarSet has no open run")
		}
	}
}

func TestSpec11_13_ARunGetsTheUserTheStepAndTheReason(t *testing.T) {
	a, _, _ := example(outriggerv1.VerbPromote)
	a.Spec.Full, a.Status.Target = true, &outriggerv1.RolloutActionTarget{UID: "s", Generation: 3, Step: 2}
	update, payload := Request(a, "h", created())
	assert.Equal(t, protocol.PromoteUpdate, update)
	want := protocol.StepRequest{Approval: protocol.Approval{By: "ann", Reason: "why"}, Generation: 3, Step: 1, Hash: "h", Full: true, NotAfter: created().Add(attempt).UTC()}
	assert.Equal(t, want, payload)
}

func TestSpec11_13_AResumeNamesAPauseByTheSpec(t *testing.T) {
	a, set, _ := example(outriggerv1.VerbResume)
	assert.Equal(t, "resumed", Answer(a, set, "resumed", false))
	set.Spec.UpdateStrategy.Paused = true
	assert.Equal(t, `the run is not paused (kubectl sidecarset status logs); SidecarSet logs is paused by its spec: kubectl patch sidecarset logs --type=merge -p '{"spec":{"updateStrategy":{"paused":false}}}'`,
		Answer(a, set, protocol.NotPaused, true))
}

func TestSpec11_13_AnActionIsRepeatedAndThenDeleted(t *testing.T) {
	a, _, _ := example(outriggerv1.VerbPause)
	for age, want := range map[time.Duration]time.Duration{
		0: time.Second, 10 * time.Second: 5 * time.Second, 5 * time.Minute: 30 * time.Second, lifetime - 5*time.Second: 6 * time.Second,
	} {
		assert.Equal(t, want, RetryAfter(a, created().Add(age)), age)
	}
	assert.False(t, Final(a))
	a.Status.Phase, a.Status.Time = outriggerv1.ActionRejected, &metav1.Time{Time: created().Add(time.Minute)}
	assert.True(t, Final(a))
	assert.Equal(t, created().Add(time.Minute+kept), DeleteAt(a))
	a.Status.Time = nil
	assert.Equal(t, created().Add(kept), DeleteAt(a))
}
