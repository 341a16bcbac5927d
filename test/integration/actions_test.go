package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/operator/actions"
	"github.com/outrigger/outrigger/operator/runs"
	temporaloptions "github.com/outrigger/outrigger/temporal"
)

// newAction creates an action for the SidecarSet of the scenario. The action is deleted at the end of the
// test.
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

// awaitAction waits until an action has a phase, and returns the message of the action.
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

// user is the name with which the API server authenticates this test.
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

	// After a backup of the cluster is restored, the action exists without its status.
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
	assert.Contains(t, s.awaitAction(other, outriggerv1.ActionRejected), "the action is for generation 1, but SidecarSet "+s.name+" has generation 2")
}

// controllerAt returns the controller of the operator for actions, which uses the clock now.
func controllerAt(now clock.PassiveClock, address string, connection sdk.Client) *actions.Controller {
	o := runs.Options{Temporal: temporaloptions.Options{Address: address, Namespace: "default"}, Name: "test", Logger: logr.Discard(), Clock: clock.RealClock{}}
	return &actions.Controller{Client: stack.kube, Runs: runs.NewClient(connection, o, runs.NewMetrics(promclient.NewRegistry())), Changed: func(string) {}, Clock: now}
}

// reconcileAction reconciles an action once, and reads the action again.
func (s *scenario) reconcileAction(c *actions.Controller, a *outriggerv1.RolloutAction) reconcile.Result {
	s.t.Helper()
	result, err := c.Reconcile(s.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
	require.NoError(s.t, err)
	require.NoError(s.t, client.IgnoreNotFound(stack.kube.Get(s.ctx, client.ObjectKeyFromObject(a), a)))
	return result
}

// Temporal keeps the update of the action until a worker runs. The clock of the operator is slow, so the
// update has expired when a worker runs.
func TestSpec11_13_AnActionWithoutAWorkerExpiresAndHasNoEffectLater(t *testing.T) {
	step := outriggerv1.RolloutStep{UpTo: intstr.FromInt32(1), Approval: &outriggerv1.StepApproval{}}
	s := newStagedScenario(t, 2, intstr.FromInt32(2), step)
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonAwaitingApproval)
	stopped := []string{"operator", "worker-1", "worker-2"}
	for _, process := range stopped {
		require.NoError(t, stack.Kill(process))
	}
	now := clocktesting.NewFakePassiveClock(time.Now().Add(-90 * time.Second))
	c := controllerAt(now, stack.TemporalAddress, stack.temporal)
	a := s.newAction(outriggerv1.VerbApprove)
	for range 2 {
		assert.Equal(t, time.Second, s.reconcileAction(c, a).RequeueAfter)
		assert.Equal(t, outriggerv1.ActionPending, a.Status.Phase)
		assert.Equal(t, "no worker responds for the run (kubectl sidecarset check)", a.Status.Message)
		assert.Equal(t, &outriggerv1.RolloutActionTarget{UID: s.set.UID, Generation: 2, Step: 1}, a.Status.Target)
	}
	// The SidecarSet has changed since the pause was sent. The run may still accept the pause.
	pause := s.newAction(outriggerv1.VerbPause)
	s.reconcileAction(c, pause)
	require.NotNil(t, pause.Status.Target)
	pause.Status.Target.Generation--
	require.NoError(t, stack.kube.Status().Update(s.ctx, pause))
	s.reconcileAction(c, pause)
	assert.Equal(t, outriggerv1.ActionPending, pause.Status.Phase)
	now.SetTime(pause.CreationTimestamp.Add(10 * time.Minute))
	s.reconcileAction(c, pause)
	assert.Equal(t, outriggerv1.ActionRejected, pause.Status.Phase)

	assert.Equal(t, time.Hour, s.reconcileAction(c, a).RequeueAfter)
	assert.Equal(t, outriggerv1.ActionRejected, a.Status.Phase)
	assert.Contains(t, a.Status.Message, "expired: not carried out within 10 minutes: no worker responds for the run")

	for _, process := range stopped {
		require.NoError(t, stack.StartAgain(s.ctx, process))
	}
	s.poll("the answer of the run", func() (bool, error) {
		result, err := s.requestStep(protocol.ApproveUpdate, 0)
		if err == nil {
			assert.Equal(t, "step 1 of 1 is approved", result.Message, "the expired action has approved the step")
		}
		return err == nil, nil
	})
	s.await(observer.Converged(2))
	now.SetTime(a.Status.Time.Add(time.Hour))
	s.reconcileAction(c, a)
	assert.True(t, apierrors.IsNotFound(stack.kube.Get(s.ctx, client.ObjectKeyFromObject(a), a)), "an action is deleted an hour after its end")
}

// The operator works without the permission to watch actions, and executes actions after this permission is
// granted.
func TestSpec11_13_TheOperatorWorksWithoutThePermissionForActions(t *testing.T) {
	t.Parallel()
	c, direct := startControlPlane(t, rbacv1.AddToScheme)
	s := &scenario{t: t, ctx: t.Context()}

	role := &rbacv1.ClusterRole{}
	require.NoError(t, direct.Get(t.Context(), client.ObjectKey{Name: "outrigger-operator"}, role))
	complete := role.DeepCopy().Rules
	role.Rules = nil
	for _, rule := range complete {
		if rule.Resources[0] != "rolloutactions" {
			role.Rules = append(role.Rules, rule)
		}
	}
	require.Len(t, role.Rules, len(complete)-1)
	require.NoError(t, direct.Update(t.Context(), role))
	for _, name := range []string{cluster.Webhook, cluster.Operator} {
		_, err := c.StartRole(t.Context(), name)
		require.NoError(t, err)
	}
	set := labelledSet("observed", "none")
	s.poll("the webhook", func() (bool, error) { return direct.Create(t.Context(), set) == nil, nil })
	a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{Name: "waits"}}
	a.Spec = outriggerv1.RolloutActionSpec{SidecarSet: "absent", Verb: outriggerv1.VerbPause}
	require.NoError(t, direct.Create(t.Context(), a))
	s.poll("the status of the SidecarSet", func() (bool, error) {
		err := direct.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		return set.Status.ObservedGeneration == set.Generation, err
	})
	require.NoError(t, direct.Get(t.Context(), client.ObjectKeyFromObject(a), a))
	assert.Empty(t, a.Status.Phase)
	role.Rules = complete
	require.NoError(t, direct.Update(t.Context(), role))
	s.poll("the answer to the action", func() (bool, error) {
		err := direct.Get(t.Context(), client.ObjectKeyFromObject(a), a)
		return a.Status.Phase == outriggerv1.ActionRejected, err
	})
	assert.Equal(t, "SidecarSet absent does not exist; kubectl get sidecarsets lists the SidecarSets", a.Status.Message)
}

// The operator rejects an action whose user was not written by the webhook.
func TestSpec11_13_AnActionWithoutAConfirmedUserIsRejected(t *testing.T) {
	t.Parallel()
	_, direct := startControlPlane(t)
	require.NoError(t, direct.Create(t.Context(), labelledSet("logs", "none")))
	controller := controllerAt(clock.RealClock{}, stack.TemporalAddress, stack.temporal)
	controller.Client = direct
	for user, want := range map[string]string{
		"":        "spec.requestedBy is empty, because webhook rolloutactions.outrigger.io was not called; apply config/webhook, and create the action again",
		"mallory": "webhook rolloutactions.outrigger.io is not installed, so spec.requestedBy may be wrong; apply config/webhook, and create the action again",
	} {
		a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{GenerateName: "forged-"}}
		a.Spec = outriggerv1.RolloutActionSpec{SidecarSet: "logs", Verb: outriggerv1.VerbPause, RequestedBy: user}
		require.NoError(t, direct.Create(t.Context(), a))
		_, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
		require.NoError(t, err)
		require.NoError(t, direct.Get(t.Context(), client.ObjectKeyFromObject(a), a))
		assert.Equal(t, outriggerv1.ActionRejected, a.Status.Phase)
		assert.Equal(t, want, a.Status.Message)
	}
}

// examples/recipes/actions restricts approvals to a group.
func TestSpec11_13_OnlyReleaseManagersApprove(t *testing.T) {
	t.Parallel()
	c, _ := startControlPlane(t)
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), append([]string{"--kubeconfig=" + c.Kubeconfig}, args...)...).CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{
		{"apply", "-f", "../../examples/recipes/actions"},
		{"create", "clusterrolebinding", "actions", "--clusterrole=outrigger-actions", "--group=system:authenticated"},
	} {
		out, err := run(args...)
		require.NoError(t, err, out)
	}
	config, err := c.RESTConfig()
	require.NoError(t, err)
	create := func(verb outriggerv1.RolloutVerb, groups ...string) error {
		as := rest.CopyConfig(config)
		as.Impersonate = rest.ImpersonationConfig{UserName: "ann", Groups: append(groups, "system:authenticated")}
		ann, err := client.New(as, client.Options{Scheme: stack.kube.Scheme()})
		require.NoError(t, err)
		a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{GenerateName: "ann-"}}
		a.Spec = outriggerv1.RolloutActionSpec{SidecarSet: "logs", Verb: verb}
		return ann.Create(t.Context(), a, client.DryRunAll)
	}
	s := &scenario{t: t, ctx: t.Context()}
	s.poll("the policy", func() (bool, error) {
		err := create(outriggerv1.VerbApprove)
		return err != nil && strings.Contains(err.Error(), "only the group release-managers"), nil
	})
	for _, verb := range []outriggerv1.RolloutVerb{outriggerv1.VerbApprove, outriggerv1.VerbPromote, outriggerv1.VerbResume, outriggerv1.VerbAbort} {
		err := create(verb, "developers")
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "only the group release-managers may "+string(verb)+" a rollout; all other users may pause it")
		require.NoError(t, create(verb, "release-managers"))
	}
	require.NoError(t, create(outriggerv1.VerbPause, "developers"))
}

// The name contains a slash, and is therefore no segment of a URL path. No SidecarSet can have this name.
func TestSpec11_13_AnActionWithAnImpossibleNameIsRejected(t *testing.T) {
	t.Parallel()
	a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{GenerateName: "impossible-"}}
	a.Spec = outriggerv1.RolloutActionSpec{SidecarSet: "a/b", Verb: outriggerv1.VerbPause}
	require.NoError(t, stack.kube.Create(t.Context(), a))
	s := &scenario{t: t, ctx: t.Context()}
	s.poll("the rejection", func() (bool, error) {
		err := stack.kube.Get(t.Context(), client.ObjectKeyFromObject(a), a)
		return a.Status.Phase == outriggerv1.ActionRejected, err
	})
	assert.Contains(t, a.Status.Message, "a/b")
}

// The definition rejects actions that no run can carry out.
func TestSpec11_13_AnActionIsValidated(t *testing.T) {
	t.Parallel()
	for want, spec := range map[string]outriggerv1.RolloutActionSpec{
		"step is a number from 1, or the name of a step": {SidecarSet: "logs", Verb: outriggerv1.VerbApprove, Step: new(intstr.FromInt32(0))},
		"step needs the verb approve or promote":         {SidecarSet: "logs", Verb: outriggerv1.VerbPause, Step: new(intstr.FromInt32(1))},
		"full needs the verb promote":                    {SidecarSet: "logs", Verb: outriggerv1.VerbApprove, Full: true},
		"the verb permit needs a reason":                 {SidecarSet: "logs", Verb: outriggerv1.VerbPermit},
		"Unsupported value":                              {SidecarSet: "logs", Verb: "stop"},
		"spec.sidecarSet":                                {Verb: outriggerv1.VerbPause},
		"the reason may have 1024 bytes":                 {SidecarSet: "logs", Verb: outriggerv1.VerbPause, Reason: strings.Repeat("日", 1000)},
	} {
		a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{GenerateName: "invalid-"}, Spec: spec}
		assert.ErrorContains(t, stack.kube.Create(t.Context(), a), want)
	}
}
