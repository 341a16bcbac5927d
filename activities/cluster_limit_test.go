package activities

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// withClusterLimit sets the cluster-wide limit, and makes the process the leader.
func (c *testCluster) withClusterLimit(limit int) *ClusterLimit {
	c.t.Helper()
	c.Cache = cacheOfSets{c.Cache, c.Live}
	c.Limit = NewClusterLimit(limit, 8, func() bool { return true }, c.clock, c.Changes, c.Metrics)
	c.Limit.begin(c.t.Context(), nil)
	return c.Limit
}

// cacheOfSets reads SidecarSets from the API server, and all other objects from the cache.
type cacheOfSets struct {
	client.Reader
	live client.Reader
}

func (c cacheOfSets) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if set, ok := o.(*v1alpha1.SidecarSet); ok {
		return c.live.Get(ctx, key, set, options...)
	}
	return c.Reader.Get(ctx, key, o, options...)
}

func named(name string) *v1alpha1.SidecarSet {
	return &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// batch returns a batch that has written no pods.
func (c *testCluster) batch() *upgradeBatch {
	return &upgradeBatch{before: c.unseenWrites(nil), own: c.unseenWrites(nil)}
}

func woken(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

func TestSpec7_5_TheClusterWideLimitIsKeptForAnyRequestsOfBatches(t *testing.T) {
	const limit, sets = 5, 4
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2))
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 3))
		f := cluster.withClusterLimit(limit)
		var moving [sets]int
		var batches [sets]*upgradeBatch
		served := map[int]bool{}
		for range 200 {
			i := random.IntN(sets)
			// A pod of any SidecarSet may become ready after the upgrade.
			if moving[i] > 0 && random.IntN(2) == 0 {
				moving[i]--
			}
			if batches[i] == nil {
				batches[i] = cluster.batch()
			}
			name := fmt.Sprint(i)
			granted := f.request(batches[i], named(name), moving[i], random.IntN(4))
			moving[i] += granted
			served[i] = served[i] || granted > 0
			sum := 0
			for _, n := range moving {
				sum += n
			}
			require.LessOrEqual(t, sum, limit, "seed %d", seed)
			if random.IntN(8) == 0 {
				f.leave(batches[i], name)
				batches[i] = nil
			}
		}
		require.Len(t, served, sets, "seed %d", seed)
	}
}

func TestSpec7_5_SlotsOfTheClusterWideLimitGoToTheBatchThatHasWaitedLongest(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2))
	f := cluster.withClusterLimit(1)
	a, b := cluster.batch(), cluster.batch()
	changed := cluster.Changes.Next("b")
	assert.Equal(t, 1, f.request(a, named("a"), 0, 3))
	assert.Zero(t, f.request(b, named("b"), 0, 3))
	assert.False(t, woken(changed))
	assert.Zero(t, f.request(a, named("a"), 0, 3), "it is b's turn")
	assert.True(t, woken(changed))
	assert.Equal(t, 1, f.request(b, named("b"), 0, 3))
	assert.InDelta(t, 1, testutil.ToFloat64(cluster.Metrics.limitUnavailable), 0)

	assert.Zero(t, f.request(a, named("a"), 0, 3))
	cluster.clock.Step(wantTTL)
	assert.Equal(t, 1, f.request(b, named("b"), 0, 3), "who asks no more does not keep slots free")
}

// Two attempts of a batch may overlap. The second attempt cannot count the writes in flight of the first attempt.
func TestSpec7_5_OneBatchOfASetAtATimeGetsSlotsOfTheClusterWideLimit(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2))
	f := cluster.withClusterLimit(3)
	first, second := cluster.batch(), cluster.batch()
	assert.Equal(t, 2, f.request(first, named("a"), 0, 2))
	assert.Zero(t, f.request(second, named("a"), 0, 2))
	f.leave(first, "a")
	assert.Equal(t, 1, f.request(second, named("a"), 2, 2))
}

func TestSpec7_5_ABatchStaysWhileTheClusterWideLimitHasNoSlot(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), webPod("a"), webPod("b"), webPod("c"))
	f := cluster.withClusterLimit(2)
	other := cluster.batch()
	require.Equal(t, 1, f.request(other, named("other"), 0, 1))
	b := cluster.batchOf("a", "b", "c")
	_, err := cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "c"}, selectedNames(b.left), "the set alone would have slots for two")
	assert.Equal(t, []any{1, "waiting for the cluster-wide limit: 2 pods are unavailable, and the limit is 2"}, b.outcome.details())

	for range 2 * refillTime / (2 * time.Second) {
		cluster.clock.Step(2 * time.Second)
		b.deadline = answeredDeadline(cluster.clock) // the server has acknowledged a heartbeat
		require.Zero(t, f.request(other, named("other"), 1, 1))
		again, err := cluster.refills(b)
		require.NoError(t, err)
		assert.NotZero(t, again, "the batch ended")
	}
	assert.Zero(t, f.request(other, named("other"), 0, 0))
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, []string{"c"}, selectedNames(b.left))
	assert.Equal(t, []any{2}, b.outcome.details())
}

// Waiting batches must leave task slots for reset batches, which release slots of the limit.
func TestSpec7_5_BatchesThatCrowdTheWorkerDoNotWaitForTheClusterWideLimit(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), webPod("a"))
	f := cluster.withClusterLimit(1)
	for i := range 5 {
		f.request(cluster.batch(), named(fmt.Sprint(i)), 0, 2)
	}
	b := cluster.batchOf("a")
	again, err := cluster.refills(b)
	require.NoError(t, err)
	assert.NotZero(t, again)
	cluster.clock.Step(refillTime)
	b.deadline = answeredDeadline(cluster.clock)
	again, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Zero(t, again, "the batch waits on")
}

// An unready pod is already unavailable, so the upgrade of the pod occupies no slot.
func TestSpec7_5_UnreadyPodsNeedNoSlotOfTheClusterWideLimit(t *testing.T) {
	down := webPod("down", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), down, webPod("up"))
	f := cluster.withClusterLimit(1)
	require.Equal(t, 1, f.request(cluster.batch(), named("other"), 0, 1))
	b := cluster.batchOf("down", "up")
	_, err := cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"down": "side:v2", "up": "side:v1"}, cluster.images())
}

// The writes of a batch occupy slots until the cache shows the writes. Then the pods occupy slots until the pods
// are ready, even if the rollout of the SidecarSet has ended.
func TestSpec7_5_PodsOfABatchThatHasEndedKeepTheirSlots(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), webPod("a"), webPod("b"))
	f := cluster.withClusterLimit(2)
	b := cluster.batchOf("a", "b")
	_, err := cluster.refills(b)
	require.NoError(t, err)
	f.leave(b, "logs")
	next := cluster.batch()
	assert.Zero(t, f.request(next, named("logs"), 0, 1), "the next batch of the set does not know the writes")
	f.leave(next, "logs")
	other := cluster.batch()
	ask := func() int {
		cluster.countShares(t.Context(), 0)
		return f.request(other, named("other"), 0, 1)
	}
	assert.Zero(t, ask(), "the cache does not show the writes")
	cluster.sync()
	f.mark("logs")
	assert.Zero(t, ask(), "the pods do not serve")
	pod := webPod("a")
	cluster.edit(pod, func() { upgraded(pod) })
	cluster.sync()
	assert.Zero(t, ask(), "nothing was heard of the set")
	f.mark("logs")
	assert.Equal(t, 1, ask())
}

// A pod whose rollout has ended occupies no slot. Only the status of the SidecarSet shows that the rollout has
// ended.
func TestSpec7_5_5_TheEndOfARolloutFreesTheSlotsOfItsPods(t *testing.T) {
	set, pod := webSet(1), webPod("a")
	cluster := newTestCluster(t, interceptor.Funcs{}, set, pod)
	cluster.edit(pod, func() {
		upgraded(pod)
		upgradedInPlace(pod)
		pod.Status.Conditions = nil
	})
	cluster.sync()
	f, other := cluster.withClusterLimit(1), cluster.batch()
	f.add(set.Name)
	cluster.countShares(t.Context(), 0)
	require.Zero(t, f.request(other, named("other"), 0, 1))

	unrecorded := set.DeepCopy()
	cluster.edit(set, func() {
		set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Hash: set.Annotations[v1alpha1.HashAnnotation], ResourceVersion: "99"}}
	})
	cluster.sync()
	cluster.setUpdated(unrecorded, set)
	require.True(t, f.sets[set.Name].outdated)
	cluster.countShares(t.Context(), 0)
	assert.Equal(t, 1, f.request(other, named("other"), 0, 1))

	// A quarantine removes the content from GoodRevisions.
	cluster.setUpdated(set, set)
	require.False(t, f.sets[set.Name].outdated, "the status has not changed")
	cluster.setUpdated(set, unrecorded)
	assert.True(t, f.sets[set.Name].outdated)
}

func TestSpec7_5_PodsOfADeletedSetKeepTheirSlotsUntilTheyAreReady(t *testing.T) {
	set, pod := webSet(1), webPod("a")
	cluster := newTestCluster(t, interceptor.Funcs{}, set, pod)
	f := cluster.withClusterLimit(1)
	b := cluster.batchOf("a")
	_, err := cluster.refills(b)
	require.NoError(t, err)
	f.leave(b, set.Name)
	cluster.sync()
	require.NoError(t, cluster.Live.(client.Client).Delete(t.Context(), set))
	other := cluster.batch()
	cluster.countShares(t.Context(), 0)
	assert.Zero(t, f.request(other, named("other"), 0, 1))
	cluster.edit(pod, func() { upgraded(pod) })
	cluster.sync()
	f.mark(set.Name)
	cluster.countShares(t.Context(), 0)
	assert.Equal(t, 1, f.request(other, named("other"), 0, 1))
	assert.NotContains(t, f.sets, set.Name)
}

// The annotation of a pod may contain the names of SidecarSets that do not exist.
func TestSpec7_5_InventedNamesInPodsTakeNoMemory(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1))
	f := cluster.withClusterLimit(1)
	known := slices.Collect(maps.Keys(f.sets))
	f.mark("invented")
	assert.ElementsMatch(t, known, slices.Collect(maps.Keys(f.sets)))
	cluster.setAdded(named("new"))
	require.Contains(t, f.sets, "new")
	assert.True(t, f.sets["new"].outdated)
}

func TestSpec7_5_OnlyTheWorkerThatLeadsUpgradesPods(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), webPod("a"))
	leads := false
	cluster.Limit = NewClusterLimit(2, 2, func() bool { return leads }, cluster.clock, cluster.Changes, cluster.Metrics)
	upgrade := func(ctx context.Context) error {
		_, err := cluster.batchOf("a").upgradeAll(ctx)
		return err
	}
	require.ErrorIs(t, inActivity(t, nil, upgrade), errNotLeading)
	leads = true
	require.ErrorIs(t, inActivity(t, nil, upgrade), errNotLeading, "it has not caught up yet")

	term, over := context.WithCancel(t.Context())
	cluster.Limit.begin(term, nil)
	b := cluster.batchOf("a")
	leads = false
	_, err := cluster.refills(b)
	require.ErrorIs(t, err, errNotLeading)
	leads = true
	ctx, done, err := cluster.Limit.within(t.Context())
	require.NoError(t, err)
	defer done()
	over()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errNotLeading)
	assert.Equal(t, map[string]string{"a": "side:v1"}, cluster.images())
}

// The previous leader has written pods, and the cache of the new leader does not show these writes yet.
func TestSpec7_5_ANewLeaderFirstWaitsForTheWritesOfOthers(t *testing.T) {
	pod := webPod("a")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), pod, webPod("b"))
	f := cluster.withClusterLimit(2)
	cluster.edit(pod, func() { pod.Labels["written"] = "by another" })
	led := make(chan struct{})
	over := make(chan error)
	go func() {
		over <- cluster.Lead(t.Context(), func(context.Context) error {
			close(led)
			return nil
		})
	}()
	require.Eventually(t, cluster.clock.HasWaiters, 10*time.Second, time.Millisecond)
	assert.False(t, woken(led))
	cluster.sync()
	cluster.clock.Step(recountInterval)
	<-led
	require.NoError(t, <-over)
	_, _, err := f.within(t.Context())
	require.ErrorIs(t, err, errNotLeading, "the term has ended")
	assert.Zero(t, testutil.CollectAndCount(cluster.Metrics.limitUnavailable))
}
