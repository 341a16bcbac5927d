package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/operator/runs"
)

func TestSpec11_7_TheEndOfAFreezeRequeuesTheSidecarSet(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name     string
		until    *time.Time
		requeue  time.Duration
		requeued time.Duration
	}{
		{"no freeze", nil, time.Hour, time.Hour},
		{"the freeze ends first", new(now.Add(time.Minute)), time.Hour, time.Minute},
		{"the run is checked first", new(now.Add(time.Minute)), time.Second, time.Second},
		{"nothing else is due", new(now.Add(time.Minute)), 0, time.Minute},
		{"the end has come meanwhile", new(now.Add(-time.Minute)), time.Hour, time.Millisecond},
	} {
		p := &pass{now: now, result: reconcile.Result{RequeueAfter: c.requeue}}
		p.frozenUntil = c.until
		assert.Equal(t, c.requeue, p.requeue().RequeueAfter, "the rollout has ended")
		p.plan.Phase = protocol.PhaseFrozen
		assert.Equal(t, c.requeued, p.requeue().RequeueAfter, c.name)
	}
}

// The counts do not change during a freeze. The run must be woken after the freeze even if the run was woken
// for the same counts before the freeze.
func TestSpec11_7_ARunIsWokenOnceAfterEachFreeze(t *testing.T) {
	now := time.Unix(1000, 0)
	var state runState
	counts := protocol.Counts{Matched: 9, Remaining: 3}
	work := &observation{plan: rollout.Plan{Phase: protocol.PhaseProgressing, Pods: make([]protocol.SelectedPod, 1), Counts: counts}}
	idle := &observation{plan: rollout.Plan{Phase: protocol.PhaseFrozen, Counts: counts}}
	wakes := func(seconds int, seen *observation) (woken int) {
		for range seconds {
			state.recordFrozen(seen.frozen())
			if state.untilCheck(seen, now) <= 0 {
				state.recordCheck(seen, now)
				if seen.hasWorkFor(&runs.Run{}) && state.mayWake(counts, false, now) {
					woken++
				}
			}
			now = now.Add(time.Second)
		}
		return woken
	}
	assert.Equal(t, 1, wakes(600, work))
	assert.Zero(t, wakes(600, idle))
	assert.False(t, state.stuck())
	assert.Equal(t, 1, wakes(2, work), "immediately")
	assert.Zero(t, wakes(600, work))
	assert.Zero(t, wakes(1, idle), "a freeze that is shorter than the check interval")
	assert.Equal(t, 1, wakes(2, work))

	counts.Migrated = 1
	resetting := &observation{plan: rollout.Plan{Phase: protocol.PhaseFrozen, Counts: counts}}
	assert.Equal(t, 1, wakes(600, resetting), "a standby twin whose reset is rejected")
}

// If the operator has no permission to list RolloutFreezes, the operator cannot determine when a freeze ends.
func TestSpec11_7_ARunWithAnUnknownFreezeIsWokenWithABackoff(t *testing.T) {
	now, woken := time.Unix(1000, 0), 0
	var state runState
	for range 3600 {
		state.forgetWake(now)
		if state.mayWake(protocol.Counts{Remaining: 3}, false, now) {
			woken++
		}
		now = now.Add(time.Second)
	}
	assert.Less(t, woken, 20)
	assert.Greater(t, woken, 10)
}

// testWithoutDefinition restarts the operator in a cluster without the definitions of group outrigger.io, which are
// installed later.
func (e *testEnv) testWithoutDefinition(t *testing.T) {
	require.NoError(t, e.cluster.Stop(cluster.Operator))
	for name, list := range map[string]client.ObjectList{
		"rolloutfreezes": &outriggerv1.RolloutFreezeList{}, "rolloutpolicies": &outriggerv1.RolloutPolicyList{}, "rolloutactions": &outriggerv1.RolloutActionList{},
	} {
		definition := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name + ".outrigger.io"}}
		definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		require.NoError(t, e.Delete(t.Context(), definition))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			err := e.List(t.Context(), list)
			assert.True(c, apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "%v", err)
		}, soon, tick)
	}
	require.NoError(t, e.cluster.StartAgain(t.Context(), cluster.Operator))
	set := newSet(t, "unfreezable", "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", "unfreezable-1")
	e.await(t, set.Name, isStarted)

	require.NoError(t, e.cluster.Apply(t.Context(), "../config/crd"))
	freeze := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: outriggerv1.RolloutFreezeSpec{Reason: "sales"}}
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	policy.Spec.Steps = []outriggerv1.RolloutStep{{UpTo: intstr.FromInt32(1)}}
	action := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: outriggerv1.RolloutActionSpec{SidecarSet: set.Name, Verb: outriggerv1.VerbPause}}
	for _, late := range []client.Object{freeze, policy, action} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, e.Create(t.Context(), late)) }, soon, tick)
	}
	e.change(t, set.Name, setImage("proxy:v2"))
	e.await(t, set.Name, func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, v1alpha1.ReasonFrozen, reasonAndMessage(set, v1alpha1.ConditionProgressing).reason)
	})
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, e.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
		assert.Equal(c, policy.Generation, policy.Status.ObservedGeneration)
		require.NoError(c, e.Get(t.Context(), client.ObjectKeyFromObject(action), action))
		assert.NotEmpty(c, action.Status.Phase)
	}, soon, tick)
}
