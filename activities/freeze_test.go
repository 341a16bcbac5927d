package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func freezeUntil(until time.Time) *outriggerv1.RolloutFreeze {
	freeze := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: "friday"}}
	freeze.Spec.Reason, freeze.Spec.Until = "sales", &metav1.Time{Time: until}
	return freeze
}

// listing calls list for each list request for RolloutFreezes. If list returns an error, the request fails with
// this error.
func listing(list func() error) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		if _, ok := l.(*outriggerv1.RolloutFreezeList); ok {
			if err := list(); err != nil {
				return err
			}
		}
		return c.List(ctx, l, opts...)
	}}
}

const frozenMessage = "frozen by RolloutFreeze friday until 2024-01-02T13:00:00Z: sales"

func TestSpec11_7_AFrozenPlanHasNoPods(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"), webPod("b", notUpgradable))
	freeze := freezeUntil(noon.Add(time.Hour))
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), freeze))
	input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true}
	result, again, err := cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again)
	assert.Equal(t, protocol.PhaseFrozen, result.Phase)
	assert.Contains(t, result.Message, frozenMessage+"; 0 of 2 pods updated")
	assert.Empty(t, result.Pods)
	assert.Empty(t, result.FalseConditions)
	assert.Equal(t, 1, result.Counts.Remaining)
	assert.Equal(t, noon.Add(time.Hour), *result.FrozenUntil)

	cluster.clock.SetTime(noon.Add(time.Hour))
	result, _, err = cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseProgressing, result.Phase, "until has passed")
}

func TestSpec11_7_ARolloutWithoutRemainingPodsEndsDuringAFreeze(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a", upgraded))
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), freezeUntil(noon.Add(time.Hour))))
	result, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true, SkipTrueConditions: true}).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseComplete, result.Phase)
}

// The operator signals a run once a freeze is deleted. The recent list of the worker may still
// contain the freeze.
func TestSpec11_7_APlanAfterTheEndOfAFreezeIsNotFrozen(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"))
	server, freeze := cluster.Live.(client.Client), freezeUntil(noon.Add(time.Hour))
	require.NoError(t, server.Create(t.Context(), freeze))
	input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true}
	result, _, err := cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	require.Equal(t, protocol.PhaseFrozen, result.Phase)

	require.NoError(t, server.Delete(t.Context(), freeze))
	cluster.clock.Step(time.Millisecond)
	result, _, err = cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseProgressing, result.Phase)
}

func TestSpec11_7_AFreezeStopsABatchWithinTwoSeconds(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a"), webPod("b"))
	b := cluster.batchOf("a", "b")
	_, err := b.wanted(t.Context())
	require.NoError(t, err)
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), freezeUntil(noon.Add(time.Hour))))
	cluster.clock.SetTime(noon.Add(maxAge))
	_, err = cluster.refills(b)
	require.ErrorIs(t, err, stopped(frozenMessage))
	assert.True(t, endedEarly(t.Context(), err), "the batch has not failed")
	assert.Equal(t, map[string]string{"a": "side:v1", "b": "side:v1"}, cluster.images())
	b.outcome.stop(err)
	assert.True(t, b.result().Frozen)
	assert.Equal(t, frozenMessage, b.result().Stopped)
}

// Pods that an attempt before the freeze has upgraded count as written. The remaining pods do not count as
// written.
func TestSpec11_7_ARetriedBatchFindsItsWritesDuringAFreeze(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a", upgraded), webPod("b"))
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), freezeUntil(noon.Add(time.Hour))))
	b := cluster.batchOf("a", "b")
	b.cacheCurrent = true
	require.NoError(t, inActivity(t, nil, b.catchUp))
	assert.Equal(t, []string{"a"}, writtenNames(b.result().Written))
}

// The number of requests must not grow with the number of rollouts.
func TestSpec11_7_AllRolloutsShareOneListOfFreezes(t *testing.T) {
	var lists atomic.Int32
	sets := make([]client.Object, 0, 50)
	for i := range cap(sets) {
		set := logs(2)
		set.Name = fmt.Sprint("logs-", i)
		sets = append(sets, set)
	}
	a, clock := newActivities(t, listing(func() error {
		lists.Add(1)
		return nil
	}), sets...)
	check := func() {
		var checks sync.WaitGroup
		for _, set := range sets {
			checks.Go(func() {
				fence := a.newFence(a.lease(protocol.SetReference{Name: set.GetName(), UID: set.GetUID()}, "one"), 2)
				if _, err := acquire(t.Context(), fence.lease); assert.NoError(t, err) {
					_, err = fence.check(t.Context())
					assert.NoError(t, err)
				}
			})
		}
		checks.Wait()
	}
	check()
	assert.EqualValues(t, 1, lists.Load())
	clock.Step(usableAge + time.Millisecond)
	check()
	assert.EqualValues(t, 2, lists.Load())
}

func TestSpec11_7_ACheckUsesNeitherAnOldSidecarSetNorAnOldListOfFreezes(t *testing.T) {
	var clock *clocktesting.FakeClock
	var sets, lists atomic.Int32
	calls := listing(func() error {
		if lists.Add(1) == 1 {
			clock.Step(refreshAge + 200*time.Millisecond)
		}
		return nil
	})
	calls.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*v1alpha1.SidecarSet); ok {
			sets.Add(1)
		}
		return c.Get(ctx, key, o, opts...)
	}
	var a *Activities
	a, clock = newActivities(t, calls, logs(2))
	fence := a.newFence(leaseOf(a, "one"), 2)
	_, err := acquire(t.Context(), fence.lease)
	require.NoError(t, err)
	_, err = fence.permission.get(t.Context())
	require.NoError(t, err)
	clock.Step(refreshAge - time.Millisecond)
	_, err = fence.check(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, sets.Load(), "the SidecarSet became too old during the request of the freezes")
}

func TestSpec11_7_AClusterWithoutTheDefinitionHasNoFreezes(t *testing.T) {
	away := error(&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "outrigger.io", Kind: "RolloutFreeze"}})
	a, clock := newActivities(t, listing(func() error { return away }), logs(2))
	fence := a.newFence(leaseOf(a, "one"), 2)
	_, err := acquire(t.Context(), fence.lease)
	require.NoError(t, err)
	_, err = fence.check(t.Context())
	require.NoError(t, err)

	clock.Step(maxAge)
	away = errors.New("connection refused")
	_, err = fence.check(t.Context())
	require.EqualError(t, err, "list RolloutFreezes: connection refused", "without the list, no pod is upgraded")
}
