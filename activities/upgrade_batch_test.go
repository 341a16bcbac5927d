package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
)

// batchOf returns an upgradeBatch for the named pods. The batch holds the Lease of the SidecarSet.
func (c *testCluster) batchOf(names ...string) *upgradeBatch {
	c.t.Helper()
	b := c.newUpgradeBatch(protocol.UpgradeBatchInput{SidecarSet: webSetReference, Generation: 2, Pods: selectedPods(names...)}, "one")
	b.deadline = answeredDeadline(c.clock)
	_, err := acquire(c.t.Context(), b.fence.lease)
	require.NoError(c.t, err)
	return b
}

// refills runs one refill of a batch, waits for the writes of the refill, and returns the result of the
// refill.
func (c *testCluster) refills(b *upgradeBatch) (again time.Duration, err error) {
	c.t.Helper()
	err = inActivity(c.t, nil, func(ctx context.Context) (err error) {
		pool, ctx := newPool(ctx, 2)
		b.pool = pool
		again, err = b.refill(ctx)
		return pool.finish(err)
	})
	return again, err
}

func TestARefillUpgradesThePodsThatHaveSlots(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), webPod("a"), webPod("b"), webPod("c"), webPod("d"))
	b := cluster.batchOf("a", "b", "c", "d")

	again, err := cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, heartbeatInterval, again)
	assert.Equal(t, map[string]string{"a": "side:v2", "b": "side:v2", "c": "side:v1", "d": "side:v1"}, cluster.images())

	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, []string{"c", "d"}, selectedNames(b.left), "writes that the cache does not show take their slots")

	cluster.sync()
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, []string{"c", "d"}, selectedNames(b.left), "no pod has converged")

	pod := webPod("b")
	cluster.edit(pod, func() { upgraded(pod) })
	cluster.sync()
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, []string{"d"}, selectedNames(b.left))
	result := b.result()
	assert.Equal(t, []string{"a", "b", "c"}, writtenNames(result.Written))
	assert.Zero(t, result.Skipped)
}

func TestARefillEndsTheBatch(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*testCluster, *v1alpha1.SidecarSet, *upgradeBatch)
		stopped string
	}{
		"once its time has passed":                 {func(c *testCluster, _ *v1alpha1.SidecarSet, _ *upgradeBatch) { c.clock.Step(refillTime) }, ""},
		"when heartbeats fail":                     {func(c *testCluster, _ *v1alpha1.SidecarSet, _ *upgradeBatch) { c.clock.Step(heartbeatGrace) }, ""},
		"when no pod is left":                      {func(_ *testCluster, _ *v1alpha1.SidecarSet, b *upgradeBatch) { b.left = nil }, ""},
		"when no pod of the batch may be upgraded": {func(_ *testCluster, _ *v1alpha1.SidecarSet, b *upgradeBatch) { b.left = selectedPods("gone") }, ""},
		"when the set is paused": {func(c *testCluster, s *v1alpha1.SidecarSet, _ *upgradeBatch) {
			c.edit(s, func() { s.Spec.UpdateStrategy.Paused = true })
		}, "paused"},
		"when the set has a newer generation": {func(c *testCluster, s *v1alpha1.SidecarSet, _ *upgradeBatch) { c.edit(s, func() { s.Generation = 3 }) }, "generation is 3"},
	} {
		t.Run(name, func(t *testing.T) {
			set := webSet(1)
			cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a"))
			b := cluster.batchOf("a")
			c.change(cluster, set, b)
			again, err := cluster.refills(b)
			if c.stopped == "" {
				require.NoError(t, err)
			} else {
				require.Equal(t, stopped(c.stopped), err)
			}
			assert.Zero(t, again)
			assert.Equal(t, map[string]string{"a": "side:v1"}, cluster.images())
		})
	}
}

func TestARefillWaitsForThePreviousBatch(t *testing.T) {
	before := webPod("before")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), before, webPod("a"))
	cluster.edit(before, func() { upgraded(before) })
	b := cluster.batchOf("a")
	b.before = b.unseenWrites([]protocol.WrittenPod{{PodReference: refTo("before"), ResourceVersion: before.ResourceVersion}})
	again, err := cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, heartbeatInterval, again)
	assert.Equal(t, []string{"a"}, selectedNames(b.left))
	cluster.sync()
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Empty(t, b.left)
}

func TestAChosenPodIsDecidedAboutAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		unready bool
		// written is set if the result lists the pod as written, by this batch or by another batch.
		written bool
	}{
		"as planned":                      {func(*corev1.Pod) {}, false, true},
		"upgraded already":                {upgraded, false, true},
		"relabelled":                      {func(p *corev1.Pod) { p.Labels = nil }, false, false},
		"no canary any more":              {func(p *corev1.Pod) { delete(p.Labels, "canary") }, false, false},
		"not upgradable any more":         {func(p *corev1.Pod) { p.Annotations[v1alpha1.HashWithoutImageAnnotation] = "{}" }, false, false},
		"chosen because it was not ready": {func(*corev1.Pod) {}, true, false},
		"its previous upgrade is under way": {func(p *corev1.Pod) {
			p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"logs":{"revision":"old","lastContainerStatuses":{"side":{"imageID":"id-1","restartCount":0}}}}`
			p.Status.ContainerStatuses[0].Image = "side:v0"
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := webPod("a", func(p *corev1.Pod) { p.Labels["canary"] = "true" })
			set := webSet(1)
			set.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}
			cluster := newTestCluster(t, interceptor.Funcs{}, set, pod)
			b := cluster.batchOf("a")
			cluster.edit(pod, func() { c.change(pod) })
			cluster.sync()
			decided, err := b.decide(t.Context(), protocol.SelectedPod{PodReference: refTo("a"), Unready: c.unready}, pod)
			require.NoError(t, err)
			assert.Equal(t, c.written, decided.done || decided.patch != nil)
			require.NoError(t, decided.rejection)
		})
	}
}

// The cache may be stale, so catchUp reads the pods from the API server.
func TestAnAttemptCatchesUpWithTheLostAttempt(t *testing.T) {
	written := webPod("written")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(2), written, webPod("left"))
	cluster.edit(written, func() { upgraded(written) })
	b := cluster.batchOf("left", "written", "gone")
	require.NoError(t, inActivity(t, nil, b.catchUp))
	assert.Equal(t, []string{"left", "gone"}, selectedNames(b.left))
	result := b.result()
	assert.Equal(t, []protocol.WrittenPod{{PodReference: refTo("written"), ResourceVersion: written.ResourceVersion}}, result.Written)
	assert.Zero(t, result.Skipped)
}

// catchUp reads a pod from the API server only if the cache has an older version of the pod, because
// thousands of such reads would delay the rollout. A read of every pod would still miss writes, because a
// request of the lost attempt may arrive after the read.
func TestAnAttemptReadsOnlyPodsThatTheCacheIsBehindWith(t *testing.T) {
	var read []string
	reads := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*corev1.Pod); ok {
			read = append(read, key.Name)
		}
		return c.Get(ctx, key, o, opts...)
	}}
	behind, known := webPod("behind"), webPod("known")
	cluster := newTestCluster(t, reads, webSet(3), behind, known, webPod("left"))
	cluster.edit(known, func() { upgraded(known) })
	cluster.sync()
	cluster.edit(behind, func() { upgraded(behind) })
	b := cluster.batchOf("left", "behind", "known")
	read, b.Writers = nil, 1
	require.NoError(t, inActivity(t, nil, b.awaitWritesOfOthers))
	require.NoError(t, inActivity(t, nil, b.catchUp))
	assert.Equal(t, []string{"behind"}, read)
	assert.Equal(t, []string{"left"}, selectedNames(b.left))
	assert.ElementsMatch(t, []string{"behind", "known"}, writtenNames(b.result().Written))
}

// The SidecarSet has newer content, so the content that the lost attempt wrote is not known.
func TestAnAttemptForAnOldGenerationReportsAllPodsAsWritten(t *testing.T) {
	set := webSet(2)
	set.Generation = 3
	cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a"), webPod("b"))
	b := cluster.batchOf("a", "b")
	require.NoError(t, inActivity(t, nil, b.catchUp))
	assert.Empty(t, b.left)
	assert.Equal(t, []string{"a", "b"}, writtenNames(b.result().Written))
	for _, written := range b.result().Written {
		assert.Empty(t, written.ResourceVersion, "the write is uncertain, so that the run still waits for earlier writes")
	}
}

func TestAnAttemptThatCannotCatchUpFails(t *testing.T) {
	away := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*corev1.Pod); ok {
			return errors.New("connection refused")
		}
		return c.Get(ctx, key, o, opts...)
	}}
	cluster := newTestCluster(t, away, webSet(2), webPod("a"))
	b := cluster.batchOf("a")
	require.EqualError(t, inActivity(t, nil, b.catchUp), "connection refused")
	assert.Empty(t, b.result().Written)
}

// The previous holder of the Lease may have written any pod of the SidecarSet.
func TestANewLeaseHolderWaitsForWritesOfThePreviousHolder(t *testing.T) {
	pod := webPod("a")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), pod, webPod("b"))
	cluster.batchOf("a")
	two := cluster.newUpgradeBatch(protocol.UpgradeBatchInput{SidecarSet: webSetReference, Generation: 2, Pods: selectedPods("b")}, "two")
	two.deadline = answeredDeadline(cluster.clock)
	cluster.edit(pod, func() { upgraded(pod) })
	acquired := make(chan error)
	go func() { acquired <- two.acquireLease(t.Context(), 1) }()
	require.Eventually(t, cluster.clock.HasWaiters, 10*time.Second, time.Millisecond)
	cluster.clock.Step(takeoverDelay)
	require.NoError(t, <-acquired)
	unseen, err := two.before.count(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, unseen)
	cluster.sync()
	unseen, err = two.before.count(t.Context())
	require.NoError(t, err)
	assert.Zero(t, unseen)
}

// The lost attempt may have taken the Lease over from another run, without a report of the writes of that run.
func TestASecondAttemptWaitsForWritesOfPreviousHolders(t *testing.T) {
	pod := webPod("a")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), pod, webPod("b"))
	b := cluster.batchOf("b")
	cluster.edit(pod, func() { upgraded(pod) })
	for attempt, want := range map[int32]int{1: 0, 2: 1} {
		b.before = b.unseenWrites(nil)
		require.NoError(t, b.acquireLease(t.Context(), attempt))
		unseen, err := b.before.count(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, unseen, attempt)
	}
}

func TestARejectedPodStopsNoOther(t *testing.T) {
	refuse := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "a" {
			return apierrors.NewForbidden(podResource, "a", errors.New("policy"))
		}
		return c.Patch(ctx, o, patch, opts...)
	}}
	cluster := newTestCluster(t, refuse, webSet(2), webPod("a"), webPod("b"), webPod("c"))
	b := cluster.batchOf("a", "b")
	_, err := cluster.refills(b)
	require.NoError(t, err)
	result := b.result()
	assert.Equal(t, []protocol.RejectedPod{{PodReference: refTo("a"), Reason: "Forbidden"}}, result.Rejected)
	assert.Equal(t, []string{"b"}, writtenNames(result.Written))
	assert.Equal(t, map[string]string{"a": "side:v1", "b": "side:v2", "c": "side:v1"}, cluster.images(), "c is not of the batch")
}

func TestSpec11_9_APodThatIsNotWrittenReleasesTheSlotOfItsOwner(t *testing.T) {
	refuse := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "rejected" {
			return apierrors.NewForbidden(podResource, "rejected", errors.New("policy"))
		}
		return c.Patch(ctx, o, patch, opts...)
	}}
	ofX := func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{UID: "x", Controller: new(true)}}
	}
	skipped := webPod("skipped", ofX)
	cluster := newTestCluster(t, refuse, webSet(3), webPod("rejected", ofX), skipped, webPod("c", ofX), webPod("d", ofX))
	cluster.edit(skipped, func() { skipped.Labels = nil })
	b := cluster.batchOf("rejected", "skipped", "c", "d")
	b.input.Stage = &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), MaxPerOwner: 1}}
	for _, left := range [][]string{{"skipped", "c", "d"}, {"c", "d"}, {"d"}, {"d"}} {
		_, err := cluster.refills(b)
		require.NoError(t, err)
		assert.Equal(t, left, selectedNames(b.left))
	}
	assert.Equal(t, map[string]string{"rejected": "side:v1", "skipped": "side:v1", "c": "side:v2", "d": "side:v1"}, cluster.images())
}

func TestUpgradeBatchReportsItsWritesAtEveryEnd(t *testing.T) {
	upgrade := func(t *testing.T, slots int, stopping chan struct{}) (*testCluster, <-chan []string) {
		cluster, written := newTestCluster(t, interceptor.Funcs{}, webSet(slots), webPod("a"), webPod("b")), make(chan []string, 1)
		go func() {
			assert.NoError(t, inActivity(t, stopping, func(ctx context.Context) error {
				b := cluster.newUpgradeBatch(protocol.UpgradeBatchInput{
					SidecarSet: webSetReference, Generation: 2, Pods: selectedPods("a"), Queued: selectedPods("b"),
				}, leaseIdentity(ctx, "one"))
				b.deadline = answeredDeadline(cluster.clock)
				result, err := b.upgradeAll(ctx)
				written <- writtenNames(result.Written)
				return err
			}))
		}()
		return cluster, written
	}
	t.Run("no pod is left", func(t *testing.T) {
		cluster, written := upgrade(t, 2, nil)
		assert.Equal(t, []string{"a", "b"}, <-written)
		assert.True(t, held(t, leaseOf(cluster.Activities, "one")), "the run goes on")
	})
	t.Run("the worker stops", func(t *testing.T) {
		stopping := make(chan struct{})
		cluster, written := upgrade(t, 1, stopping)
		// The two timers are for the end of the poll, and the wait after the first check.
		require.Eventually(t, func() bool { return cluster.clock.Waiters() == 2 }, 10*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return cluster.images()["a"] == "side:v2" }, 10*time.Second, time.Millisecond)
		cluster.clock.Step(rollout.MinInterval)
		close(stopping)
		assert.Equal(t, []string{"a"}, <-written)
		assert.True(t, held(t, leaseOf(cluster.Activities, "one")), "the run goes on")
	})
}

// A user edits the SidecarSet while the webhook is not called, so the annotations are not updated.
func TestSpec2_PodsFollowTheContentOfASetWithOutdatedAnnotations(t *testing.T) {
	set := webSet(1)
	set.Spec.Containers[0].Image = "side:v1"
	require.NoError(t, revision.Complete(set, nil))
	pod := webPod("a", func(p *corev1.Pod) {
		for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
			p.Annotations[key] = fixture.HashEntry(set, key)
		}
	})
	set.Spec.Containers = webSet(1).Spec.Containers // side:v2, without defaults
	cluster := newTestCluster(t, interceptor.Funcs{}, set, pod)
	result, err := cluster.upgradeBatch(t, unchanged, "a")
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, writtenNames(result.Written))
	assert.Equal(t, map[string]string{"a": "side:v2"}, cluster.images())

	completed, err := revision.Completed(set)
	require.NoError(t, err)
	require.NotEqual(t, set.Annotations, completed.Annotations)
	written, err := readPod(t.Context(), cluster.Live, refTo("a"))
	require.NoError(t, err)
	assert.Contains(t, written.Annotations[v1alpha1.HashAnnotation], completed.Annotations[v1alpha1.HashAnnotation])
}
