package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/operator/runs"
)

// The cache may not contain a new namespace yet. A namespace may also be missing permanently, if the namespace
// was removed without its pods.
func TestANamespaceThatTheCacheLacksIsNoInvalidSidecarSetForAWhile(t *testing.T) {
	var missing missingNamespaces
	lacks := fmt.Errorf("look up namespace shop: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"))
	p := &pass{set: setAt(generation), now: time.Unix(1000, 0)}
	require.NoError(t, missing.check(p))
	for _, c := range []struct {
		after   time.Duration
		invalid error
		requeue bool
	}{{0, lacks, true}, {missingTimeout - 1, lacks, true}, {1, lacks, false}, {0, errors.New("other"), false}, {0, lacks, true}} {
		p.now, p.invalid = p.now.Add(c.after), c.invalid
		assert.Equal(t, c.requeue, missing.check(p) != nil)
		assert.Equal(t, c.invalid, p.invalid, "a missing namespace of an injected pod is shown")
	}
	// A pod without sidecars in a removed namespace does not stop the rollout.
	p.invalid = lacks
	require.ErrorIs(t, missing.ignore(p), lacks)
	p.now = p.now.Add(missingTimeout)
	require.NoError(t, missing.ignore(p))
	require.NoError(t, p.invalid)
	other := errors.New("other")
	p.invalid = other
	require.NoError(t, missing.ignore(p))
	assert.Equal(t, other, p.invalid)
}

func evictsNothing(string) (evicts, known bool) { return false, true }

// argoHealth runs the health script in the same way as Argo CD, and returns the health.
func argoHealth(t *testing.T, object map[string]any) string {
	t.Helper()
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", luaValue(l, object))
	require.NoError(t, l.DoFile("../config/argocd/health.lua"))
	return l.Get(-1).(*lua.LTable).RawGetString("status").String()
}

func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, one := range v {
			table.RawSetString(key, luaValue(l, one))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, one := range v {
			table.Append(luaValue(l, one))
		}
		return table
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	}
	return lua.LNil // the script reads no other values
}

func TestSpec8_8_ToolsThatWaitReadTheStateOfARollout(t *testing.T) {
	all := protocol.Counts{Matched: 4, Updated: 4, Ready: 4, UpdatedReady: 4}
	half := protocol.Counts{Matched: 4, Updated: 2, Ready: 3, Unavailable: 1, Converging: 1, Remaining: 2}
	last := protocol.Counts{Matched: 4, Updated: 4, Ready: 3, Unavailable: 1, Converging: 1}
	left := protocol.Counts{Matched: 4, Updated: 2, Ready: 4, NotUpgradable: 2}
	step := func(counts protocol.Counts) rollout.Plan {
		full := plan(protocol.PhaseWaiting, counts)
		full.StepFull, full.MaxUnavailable = true, 9
		return full
	}
	broken := func(n int) rollout.BrokenPods {
		return rollout.BrokenPods{Count: n, UsingSlots: n, Reason: podstate.ImagePullBackOff, Example: "shop/p"}
	}
	for _, c := range []struct {
		name   string
		seen   observation
		reason string
		want   status.Status
		health string
	}{
		{"complete", observation{plan: plan(protocol.PhaseComplete, all)}, "RolloutComplete", status.CurrentStatus, "Healthy"},
		{"no pods", observation{plan: plan(protocol.PhaseComplete, protocol.Counts{})}, "RolloutComplete", status.CurrentStatus, "Healthy"},
		{"partition", observation{plan: plan(protocol.PhasePartitionReached, half)}, "PartitionReached", status.CurrentStatus, "Healthy"},
		{"upgrades disabled", observation{plan: plan(protocol.PhaseNotUpdate, left)}, "NotUpdate", status.CurrentStatus, "Healthy"},
		{"in progress", observation{plan: plan(protocol.PhaseProgressing, half)}, "RolloutInProgress", status.InProgressStatus, "Progressing"},
		{"waiting", observation{plan: plan(protocol.PhaseWaiting, half)}, "WaitingForPods", status.InProgressStatus, "Progressing"},
		{"paused by spec", observation{plan: plan(protocol.PhasePaused, half)}, "Paused", status.InProgressStatus, "Suspended"},
		{"paused by signal", observation{plan: plan(protocol.PhaseWaiting, half), pause: &v1alpha1.RolloutPause{}}, "Paused", status.InProgressStatus, "Suspended"},
		{"no Temporal", observation{plan: plan(protocol.PhaseWaiting, half), temporal: errors.New("away")}, "EngineUnavailable", status.InProgressStatus, "Progressing"},
		{"no worker", observation{plan: plan(protocol.PhaseWaiting, half), fault: runs.Fault{Reason: "WorkerUnavailable"}}, "WorkerUnavailable", status.InProgressStatus, "Progressing"},
		{"no webhook", observation{plan: plan(protocol.PhaseComplete, all), webhookFault: "away"}, "RolloutComplete", status.CurrentStatus, "Healthy"},
		{"the run fails", observation{plan: plan(protocol.PhaseWaiting, half), fault: runs.Fault{Reason: "RolloutFailing"}}, "RolloutFailing", status.FailedStatus, "Degraded"},
		{"one bad pod, and other pods are in progress", observation{plan: plan(protocol.PhaseProgressing, half), broken: broken(1)}, "RolloutInProgress", status.InProgressStatus, "Progressing"},
		{"an old pod cannot start, and another pod is in progress", observation{plan: plan(protocol.PhaseWaiting, half), broken: rollout.BrokenPods{Count: 1, Reason: podstate.ImagePullBackOff}}, "WaitingForPods", status.InProgressStatus, "Progressing"},
		{"bad pods use all slots", observation{plan: plan(protocol.PhaseWaiting, half), broken: broken(1)}, "ImagePullBackOff", status.FailedStatus, "Degraded"},
		{"another pod of the step is in progress", observation{plan: step(protocol.Counts{Matched: 4, Updated: 2, Ready: 2, Unavailable: 2, Converging: 2, Remaining: 2}), broken: broken(1)}, "WaitingForPods", status.InProgressStatus, "Progressing"},
		{"all pods of the step are bad", observation{plan: step(half), broken: broken(1)}, "ImagePullBackOff", status.FailedStatus, "Degraded"},
		{"pods are left that partition keeps", observation{plan: plan(protocol.PhasePartitionReached, left)}, "PartitionReached", status.CurrentStatus, "Healthy"},
		{"the last pod is bad", observation{plan: plan(protocol.PhaseWaiting, last), broken: broken(1)}, "ImagePullBackOff", status.FailedStatus, "Degraded"},
		{"a bad pod in a rollout that has ended", observation{plan: plan(protocol.PhaseComplete, all), broken: broken(1)}, "RolloutComplete", status.CurrentStatus, "Healthy"},
		{"pods are left that cannot be upgraded", observation{plan: plan(protocol.PhaseComplete, left)}, "NotUpgradablePods", status.FailedStatus, "Degraded"},
		{"their sidecars crash", observation{plan: plan(protocol.PhaseComplete, left), broken: rollout.BrokenPods{Count: 2, Reason: podstate.ImagePullBackOff, Example: "shop/p"}}, "NotUpgradablePods", status.FailedStatus, "Degraded"},
		{"another pod is unreadable", observation{plan: plan(protocol.PhaseComplete, left), unreadable: rollout.UnreadablePods{Count: 1}}, "NotUpgradablePods", status.FailedStatus, "Degraded"},
		{"they are evicted", observation{plan: plan(protocol.PhaseComplete, left), evicts: true}, "NotUpgradablePods", status.InProgressStatus, "Progressing"},
		{"they are left to the end", observation{plan: plan(protocol.PhaseProgressing, left)}, "RolloutInProgress", status.InProgressStatus, "Progressing"},
		{"invalid", observation{invalid: errors.New("no hash")}, "Invalid", status.FailedStatus, "Degraded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireWaitState(t, &pass{observation: c.seen, set: setAt(generation)}, c.reason, c.want, c.health)
		})
	}
}

func TestSpec8_8_ToolsThatWaitReadTheStateOfARolloutInSteps(t *testing.T) {
	half := protocol.Counts{Matched: 4, Updated: 2, Ready: 4, UpdatedReady: 2, Remaining: 2}
	reached := observation{plan: plan(protocol.PhaseStepReached, half)}
	frozen := func(reason string) observation {
		return observation{plan: plan(protocol.PhaseFrozen, half), frozenReason: reason}
	}
	bakes := &v1alpha1.RolloutStage{Step: 1, Steps: 2, UpTo: new(intstr.FromInt32(2)), Bake: &metav1.Duration{Duration: time.Minute}, ReachedAt: new(metav1.NewMicroTime(time.Unix(990, 0)))}
	waits := &v1alpha1.RolloutStage{Step: 1, Steps: 2, UpTo: new(intstr.FromInt32(2)), Approval: true, ReachedAt: new(metav1.NewMicroTime(time.Unix(990, 0)))}
	gated := func(phase string) *v1alpha1.RolloutStage {
		gate := v1alpha1.StageGate{Name: "errors", Phase: phase}
		return &v1alpha1.RolloutStage{Step: 1, Steps: 2, UpTo: new(intstr.FromInt32(2)), Gates: []v1alpha1.StageGate{gate}, ReachedAt: new(metav1.NewMicroTime(time.Unix(990, 0)))}
	}
	inconclusive := reached
	inconclusive.pause = &v1alpha1.RolloutPause{By: "RolloutPolicy edge", Reason: "gate errors is inconclusive"}
	for _, c := range []struct {
		name   string
		seen   observation
		stage  *v1alpha1.RolloutStage
		reason string
		health string
	}{
		{"the step bakes", reached, bakes, "Baking", "Progressing"},
		{"a gate measures", reached, gated("Running"), "GateRunning", "Progressing"},
		{"a gate has no clear answer", inconclusive, gated("Inconclusive"), "GateInconclusive", "Suspended"},
		{"the step waits for approval", reached, waits, "AwaitingApproval", "Suspended"},
		{"frozen", frozen("Frozen"), nil, "Frozen", "Suspended"},
		{"outside the windows", frozen("OutsideWindow"), nil, "OutsideWindow", "Suspended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pass{observation: c.seen, set: setAt(generation)}
			p.set.Status.Rollout.Stage = c.stage
			requireWaitState(t, p, c.reason, status.InProgressStatus, c.health)
		})
	}
}

func TestSpec11_12_ToolsThatWaitFailDuringAndAfterARollback(t *testing.T) {
	for _, phase := range []protocol.Phase{protocol.PhaseProgressing, protocol.PhaseWaiting, protocol.PhaseQuarantined} {
		p := &pass{observation: observation{plan: plan(phase, protocol.Counts{Matched: 4, Updated: 4, Ready: 4})}, set: setAt(generation), target: &appsv1.ControllerRevision{}}
		p.plan.Quarantined = 1
		p.quarantine = &v1alpha1.RolloutQuarantine{Hash: p.set.Annotations[v1alpha1.HashAnnotation], Revision: "logs-1", Reason: "3 pods failed"}
		requireWaitState(t, p, "Quarantined", status.FailedStatus, "Degraded")
		assert.EqualValues(t, 1, p.set.Status.UpdatedPods, "updated pods have the content of the SidecarSet")
		assert.Contains(t, meta.FindStatusCondition(p.set.Status.Conditions, v1alpha1.ConditionDegraded).Message, "kubectl sidecarset retry ")
		p.fault = runs.Fault{Reason: v1alpha1.ReasonWorkerUnavailable, Message: "nobody"}
		requireWaitState(t, p, "Quarantined", status.FailedStatus, "Degraded")
	}
}

// requireWaitState checks the results of kstatus and of Argo CD for the status that the operator writes at Unix
// time 1000.
func requireWaitState(t *testing.T, p *pass, reason string, want status.Status, health string) {
	t.Helper()
	p.now, p.set.Status.ObservedGeneration = time.Unix(1000, 0), generation-1
	describe(p)
	ready := meta.FindStatusCondition(p.set.Status.Conditions, v1alpha1.ConditionReady)
	assert.Equal(t, reason, ready.Reason)

	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.set)
	require.NoError(t, err)
	object := &unstructured.Unstructured{Object: content}
	got, err := status.Compute(object)
	require.NoError(t, err)
	assert.Equal(t, want, got.Status, got.Message)
	assert.Equal(t, health, argoHealth(t, content))

	object.SetGeneration(generation + 1)
	got, err = status.Compute(object)
	require.NoError(t, err)
	assert.Equal(t, status.InProgressStatus, got.Status, "the operator has not observed the newest generation")
}
