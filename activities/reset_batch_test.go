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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// hotSet returns webSet with a hot sidecar.
func hotSet() *v1alpha1.SidecarSet {
	set := webSet(5)
	set.Spec.Containers[0].UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{
		UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty:1",
	}
	return fixture.Hashed(set)
}

// hotPod returns a pod whose active twin side-2 has the image side:v2. The standby twin side-1 still has the
// image side:v1.
func hotPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	return webPod(name, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Annotations[v1alpha1.HashAnnotation] = fixture.HashEntry(hotSet(), v1alpha1.HashAnnotation)
		p.Annotations[v1alpha1.HashWithoutImageAnnotation] = fixture.HashEntry(hotSet(), v1alpha1.HashWithoutImageAnnotation)
		p.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = `{"side":"side-2"}`
		p.Annotations[v1alpha1.VersionAnnotationPrefix+"side-1"] = "1"
		p.Annotations[v1alpha1.VersionAnnotationPrefix+"side-2"] = "100"
		p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"logs":{"revision":"` + hotSet().Annotations[v1alpha1.HashAnnotation] + `","lastContainerStatuses":{"side-2":{"imageID":"id-empty","restartCount":0}}}}`
		p.Spec.Containers = []corev1.Container{{Name: "side-1", Image: "side:v1"}, {Name: "side-2", Image: "side:v2"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "side-1", Image: "side:v1", ImageID: "id-1", Ready: true}, {Name: "side-2", Image: "side:v2", ImageID: "id-2", Ready: true},
		}
	}}, changes...)...)
}

// migratingYet changes a pod so that the active twin does not run the new image yet.
func migratingYet(pod *corev1.Pod) {
	pod.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "side-2", Image: "empty:1", ImageID: "id-empty"}
}

func TestMigratedPodsAreFound(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, hotSet(),
		hotPod("migrated"), hotPod("waits", migratingYet), hotPod("rejected"),
		hotPod("reset", func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "empty:1"
			p.Annotations[v1alpha1.VersionAnnotationPrefix+"side-1"] = "0"
		}))
	found, err := cluster.findMigrating(t.Context(), hotSet(), func(pod protocol.PodReference) bool { return pod.Name == "rejected" })
	require.NoError(t, err)
	found.population = nil
	assert.Equal(t, migrating{
		pending: 3, maxUnavailable: 5,
		migrated: []protocol.PodReference{refTo("migrated")}, migratedExcluded: []protocol.PodReference{refTo("rejected")},
	}, found)
}

func TestAwaitMigration(t *testing.T) {
	for name, c := range map[string]struct {
		pods     []*corev1.Pod
		rejected []protocol.PodReference
		want     protocol.AwaitMigrationResult
	}{
		"migrated pods":            {[]*corev1.Pod{hotPod("a"), hotPod("b", migratingYet)}, nil, protocol.AwaitMigrationResult{Pods: []protocol.PodReference{refTo("a")}, Pending: 2}},
		"rejected pods come last":  {[]*corev1.Pod{hotPod("a"), hotPod("b")}, []protocol.PodReference{refTo("a")}, protocol.AwaitMigrationResult{Pods: []protocol.PodReference{refTo("b")}, Pending: 2}},
		"rejected pods alone":      {[]*corev1.Pod{hotPod("a")}, []protocol.PodReference{refTo("a")}, protocol.AwaitMigrationResult{Pods: []protocol.PodReference{refTo("a")}, Pending: 1}},
		"no pod migrates any more": {nil, nil, protocol.AwaitMigrationResult{}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, hotSet(), c.pods...)
			var result protocol.AwaitMigrationResult
			err := inActivity(t, nil, func(ctx context.Context) (err error) {
				result, err = cluster.AwaitMigration(ctx, protocol.AwaitMigrationInput{SidecarSet: webSetReference, Rejected: rejectedAgain(c.rejected...).Pods})
				return err
			})
			require.NoError(t, err)
			assert.Equal(t, c.want, result)
		})
	}
}

// A reset batch without a free slot would run for resetTime without a reset, and the run would then start another
// batch.
func TestSpec7_7_NoResetBatchStartsWithoutAFreeSlot(t *testing.T) {
	set := hotSet()
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	restarting := hotPod("restarting")
	cluster := newTestCluster(t, interceptor.Funcs{}, set, restarting, hotPod("migrated"))
	cluster.Events = events.NewFakeRecorder(10)
	lookOnce(t, cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference, Pods: []protocol.PodReference{refTo("restarting")}}))
	cluster.sync()
	await := func() (result protocol.AwaitMigrationResult) {
		awaitOverTime(t, cluster, func() error {
			return inActivity(t, nil, func(ctx context.Context) (err error) {
				result, err = cluster.AwaitMigration(ctx, protocol.AwaitMigrationInput{SidecarSet: webSetReference})
				return err
			})
		})
		return result
	}
	began := cluster.clock.Now()
	assert.Equal(t, protocol.AwaitMigrationResult{Pending: 1}, await())
	assert.GreaterOrEqual(t, cluster.clock.Since(began), protocol.NextBatchPoll, "nothing wakes a run after the end of the rollout")
	cluster.edit(restarting, func() {
		restarting.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "side-1", Image: "empty:1", ImageID: "id-empty", RestartCount: 1, Ready: true}
	})
	cluster.sync()
	assert.Equal(t, protocol.AwaitMigrationResult{Pods: []protocol.PodReference{refTo("migrated")}, Pending: 1}, await())
}

func TestSpec7_7_ResetEmptiesTheStandbyTwin(t *testing.T) {
	refuse := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "b" {
			return apierrors.NewForbidden(podResource, "b", errors.New("policy"))
		}
		return c.Patch(ctx, o, patch, opts...)
	}}
	cluster := newTestCluster(t, refuse, hotSet(), hotPod("a"), hotPod("b"), hotPod("c", migratingYet), hotPod("d"))
	recorder := events.NewFakeRecorder(10)
	cluster.Events = recorder
	var result protocol.ResetBatchResult
	err := inActivity(t, nil, func(ctx context.Context) (err error) {
		result, err = cluster.resetBatchOf(protocol.ResetBatchInput{
			SidecarSet: webSetReference, Pods: []protocol.PodReference{refTo("a"), refTo("b"), refTo("c")}, Rejected: rejectedAgain(refTo("d")).Pods,
		}).resetAll(ctx, webSetReference)
		return err
	})
	require.NoError(t, err)
	assert.Equal(t, protocol.ResetBatchResult{Reset: 1, Skipped: 1, Rejected: []protocol.RejectedPod{{PodReference: refTo("b"), Reason: "Forbidden"}}}, result)
	assert.Equal(t, map[string]string{"a": "empty:1", "b": "side:v1", "c": "side:v1", "d": "side:v1"}, cluster.images())
	recorded := map[string]bool{(<-recorder.Events)[:len("Warning ResetContainer")]: true, (<-recorder.Events)[:len("Warning ResetContainer")]: true}
	assert.Len(t, recorded, 2, "one of success, one of failure")
}

// resetBatchOf returns a batch whose first heartbeat the server has acknowledged.
func (c *testCluster) resetBatchOf(input protocol.ResetBatchInput) *resetBatch {
	b := c.newResetBatch(input)
	b.deadline = answeredDeadline(c.clock)
	return b
}

// A worker without a connection to Temporal cannot detect whether another worker resets further pods. The cache
// of a worker may miss the writes of the other worker.
func TestSpec7_5_AResetBatchFillsNoSlotThatAnotherWorkerMayFill(t *testing.T) {
	behind := func(b *resetBatch) {
		b.before.add([]protocol.WrittenPod{{PodReference: refTo("a"), ResourceVersion: "99999"}})
	}
	for name, c := range map[string]struct {
		change func(*resetBatch)
		again  time.Duration
	}{
		"without a heartbeat":   {func(b *resetBatch) { b.deadline = newWriteDeadline(b.Clock) }, 0},
		"with a stale cache":    {func(b *resetBatch) { b.Current = func() error { return errors.New("the watch is down") } }, heartbeatInterval},
		"with a cache too late": {behind, heartbeatInterval},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, hotSet(), hotPod("a"))
			b := cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference, Pods: []protocol.PodReference{refTo("a")}})
			c.change(b)
			assert.Equal(t, c.again, lookOnce(t, b))
			assert.Equal(t, "side:v1", cluster.images()["a"])
			_, err := b.wanted(t.Context())
			assert.Equal(t, c.again == 0, err != nil, "a frozen process may wake up in the middle of a write")
		})
	}
}

// lookOnce runs one check of the batch and waits for the writes of the batch.
func lookOnce(t *testing.T, b *resetBatch) (again time.Duration) {
	t.Helper()
	err := inActivity(t, nil, func(ctx context.Context) (err error) {
		b.pool, ctx = newPool(ctx, 1)
		if again, err = b.check(ctx); err != nil {
			return err
		}
		return b.pool.wait()
	})
	require.NoError(t, err)
	return again
}

// The reset batch skips a pod if its cache is older than the cache of the worker that selected the pod. A batch
// that continues with other pods must retry the skipped pods.
func TestAResetBatchRetriesPodsThatItSkipped(t *testing.T) {
	writes := 0
	busy := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if writes++; writes <= attempts {
			return apierrors.NewConflict(podResource, o.GetName(), errors.New("somebody else wrote it"))
		}
		return c.Patch(ctx, o, patch, opts...)
	}}
	cluster := newTestCluster(t, busy, hotSet(), hotPod("a"), hotPod("slow", migratingYet))
	cluster.Events = events.NewFakeRecorder(10)
	b := cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference})
	assert.NotZero(t, lookOnce(t, b))
	assert.Equal(t, protocol.ResetBatchResult{Skipped: 1}, b.result())
	lookOnce(t, b)
	assert.Equal(t, attempts, writes, "not before its time")
	cluster.clock.Step(heartbeatInterval)
	assert.NotZero(t, lookOnce(t, b))
	assert.Equal(t, protocol.ResetBatchResult{Reset: 1}, b.result())
	assert.Equal(t, "empty:1", cluster.images()["a"])
	recorder := cluster.Events.(*events.FakeRecorder)
	require.Len(t, recorder.Events, 1)
	assert.Contains(t, <-recorder.Events, eventResetSucceed, "a conflict is no rejection")
}

// The batch also resets pods that migrate during the batch.
func TestAResetBatchRunsConcurrentlyWithAnUpgradeBatch(t *testing.T) {
	pod := hotPod("a", migratingYet)
	cluster := newTestCluster(t, interceptor.Funcs{}, hotSet(), pod)
	cluster.Events = events.NewFakeRecorder(10)
	b := cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference, Upgrading: true})
	look := func() time.Duration { return lookOnce(t, b) }
	assert.Equal(t, heartbeatInterval, look())
	cluster.edit(pod, func() { pod.Status.ContainerStatuses = hotPod("a").Status.ContainerStatuses })
	cluster.sync()
	cluster.clock.Step(resetIdleTimeout)
	assert.Equal(t, heartbeatInterval, look())
	assert.Equal(t, map[string]string{"a": "empty:1"}, cluster.images())
	cluster.clock.Step(resetIdleTimeout / 2)
	assert.Equal(t, heartbeatInterval, look(), "more may follow")
	cluster.clock.Step(resetIdleTimeout / 2)
	assert.Zero(t, look(), "no pod has been migrating for a while")
	assert.Equal(t, protocol.ResetBatchResult{Reset: 1}, b.result())
}

// The backend of an app was down during the upgrade, so all pods were unready, and were upgraded without slots.
// All pods become ready in the same second.
func TestSpec7_5_AtMostMaxUnavailableTwinsRestartAtTheSameTime(t *testing.T) {
	for name, good := range map[string][]v1alpha1.GoodRevision{
		"in a rollout": nil,
		"after the end of the rollout, such as a rollout by OpenKruise": {{Hash: hotSet().Annotations[v1alpha1.HashAnnotation]}},
	} {
		t.Run(name, func(t *testing.T) { assertResetsWithin(t, good) })
	}
}

// assertResetsWithin asserts that at most two of five pods are reset at the same time if maxUnavailable is 2.
func assertResetsWithin(t *testing.T, good []v1alpha1.GoodRevision) {
	t.Helper()
	set := hotSet()
	set.Status.GoodRevisions = good
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2))
	pods := []*corev1.Pod{hotPod("a"), hotPod("b"), hotPod("c"), hotPod("d"), hotPod("e")}
	cluster := newTestCluster(t, interceptor.Funcs{}, set, pods[0], pods[1], pods[2], pods[3], pods[4])
	cluster.Events = events.NewFakeRecorder(10)
	empty := func() (n int) {
		for _, image := range cluster.images() {
			if image == "empty:1" {
				n++
			}
		}
		return n
	}
	b := cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference, Pods: []protocol.PodReference{refTo("a"), refTo("b"), refTo("c")}})
	for range 3 {
		lookOnce(t, b)
		cluster.sync()
		assert.Equal(t, 2, empty(), "the emptied twins are not running yet")
	}
	next := cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference})
	lookOnce(t, next)
	cluster.sync()
	assert.Equal(t, 2, empty(), "another batch does not know the resets of the first batch")
	for want := 4; want <= 5; want++ {
		for _, pod := range pods {
			cluster.edit(pod, func() {
				if pod.Spec.Containers[0].Image == "empty:1" {
					pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "side-1", Image: "empty:1", ImageID: "id-empty", RestartCount: 1, Ready: true}
				}
			})
		}
		cluster.sync()
		lookOnce(t, b)
		assert.Equal(t, want, empty())
		cluster.sync()
	}
}
