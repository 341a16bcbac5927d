package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// newAction creates an action for the SidecarSet of a scenario.
func (s *scenario) newAction(verb outriggerv1.RolloutVerb, change ...func(*outriggerv1.RolloutActionSpec)) *outriggerv1.RolloutAction {
	s.t.Helper()
	a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{GenerateName: s.name + "-"}}
	a.Spec = outriggerv1.RolloutActionSpec{SidecarSet: s.name, Verb: verb, Reason: "tested"}
	for _, f := range change {
		f(&a.Spec)
	}
	require.NoError(s.t, stack.kube.Create(s.ctx, a))
	s.t.Cleanup(func() {
		require.NoError(s.t, client.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(s.ctx), a)))
	})
	return a
}

// awaitAction waits for a phase of an action, and returns its message.
func (s *scenario) awaitAction(a *outriggerv1.RolloutAction, phase outriggerv1.RolloutActionPhase) string {
	s.t.Helper()
	s.poll("action "+string(a.Spec.Verb)+" to be "+string(phase), func() (bool, error) {
		err := stack.kube.Get(s.ctx, client.ObjectKeyFromObject(a), a)
		if a.Status.Phase != phase && a.Status.Phase != "" && a.Status.Phase != outriggerv1.ActionPending {
			require.Fail(s.t, "another end", "%+v", a.Status)
		}
		return a.Status.Phase == phase, err
	})
	return a.Status.Message
}

// user is the name of the user of this test, which the API server has authenticated.
const user = "admin"

func TestSpec11_13_AnActionApprovesAStepInTheNameOfItsUser(t *testing.T) {
	t.Parallel()
	step := outriggerv1.RolloutStep{Name: "canary", UpTo: intstr.FromInt32(1), Approval: &outriggerv1.StepApproval{}}
	s := newStagedScenario(t, 4, intstr.FromInt32(4), step, bakes(intstr.FromInt32(2), time.Hour))
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonAwaitingApproval)
	half := s.newAction(outriggerv1.VerbApprove, func(spec *outriggerv1.RolloutActionSpec) { spec.Step = new(intstr.FromString("half")) })
	assert.Contains(t, s.awaitAction(half, outriggerv1.ActionRejected), "the action is for step half, and the current step is step 1 of 2 (canary)")

	approve := s.newAction(outriggerv1.VerbApprove, func(spec *outriggerv1.RolloutActionSpec) {
		spec.Step, spec.RequestedBy = new(intstr.FromString("canary")), "mallory"
	})
	assert.Equal(t, user, approve.Spec.RequestedBy, "the webhook replaces the user")
	assert.Equal(t, "step 1 of 2 (canary) is approved", s.awaitAction(approve, outriggerv1.ActionSucceeded))
	assert.EqualValues(t, 1, approve.Status.Target.Step)
	s.awaitReason(v1alpha1.ReasonBaking)
	assert.Equal(t, 2, s.watched.View().Updated)

	forged := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"requestedBy":"mallory"}}`))
	require.ErrorContains(t, stack.kube.Patch(s.ctx, approve, forged), "an action never changes")

	// A backup of the cluster that is restored has the action without its answer.
	for range 2 {
		lost := client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))
		require.NoError(t, stack.kube.Status().Patch(s.ctx, approve, lost))
		assert.Equal(t, "step 1 of 2 (canary) is approved", s.awaitAction(approve, outriggerv1.ActionSucceeded), "the run answers as before")
	}
	assert.Equal(t, 2, s.watched.View().Updated)
	s.newAction(outriggerv1.VerbPromote)
	s.await(observer.Converged(4))
}

func TestSpec11_13_ActionsPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 4, intstr.FromInt32(4), bakes(intstr.FromInt32(1), time.Hour))
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	assert.Equal(t, "paused", s.awaitAction(s.newAction(outriggerv1.VerbPause), outriggerv1.ActionSucceeded))
	assert.Equal(t, "paused by signal from "+user+": tested", s.awaitPhase(protocol.PhasePaused).Message)
	assert.Equal(t, "resumed", s.awaitAction(s.newAction(outriggerv1.VerbResume), outriggerv1.ActionSucceeded))
	assert.Contains(t, s.awaitAction(s.newAction(outriggerv1.VerbResume), outriggerv1.ActionRejected), protocol.NotPaused)
	other := s.newAction(outriggerv1.VerbAbort, func(spec *outriggerv1.RolloutActionSpec) { spec.Generation = 1 })
	assert.Contains(t, s.awaitAction(other, outriggerv1.ActionRejected), "the action is for generation 1, and SidecarSet "+s.name+" has generation 2")
}
