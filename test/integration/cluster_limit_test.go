package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// limitedCluster is a namespace with several SidecarSets and the pods of each SidecarSet, and workers with a
// cluster-wide limit.
type limitedCluster struct {
	scenario
	sets    []*v1alpha1.SidecarSet
	pods    int
	workers []string
}

// newLimitedCluster starts the workers first, so that a worker is elected before the rollouts start. The cache
// of one worker is delayed by late.
func newLimitedCluster(t *testing.T, name string, sets, pods int32, limit int, late time.Duration, kubelet map[string]string) *limitedCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	f := &limitedCluster{scenario: scenario{t: t, ctx: ctx, name: name}, pods: int(sets * pods)}
	for i := range 2 {
		f.workers = append(f.workers, fmt.Sprintf("worker-%s-%d", name, i))
	}
	for _, usual := range workers() {
		require.NoError(t, stack.Stop(usual))
	}
	t.Cleanup(func() { startWorkers(context.WithoutCancel(ctx), t) })
	for i, worker := range f.workers {
		args := []string{fmt.Sprintf("--max-unavailable-pods=%d", limit)}
		if i == 1 && late > 0 {
			args = append(args, "--kubeconfig="+lateKubeconfig(t, worker, "", late))
		}
		_, err := stack.StartRole(ctx, worker, args...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, stack.Stop(worker)) })
	}
	require.NoError(t, stack.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	f.set = &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}} // The test does not create the SidecarSet of the scenario.
	t.Cleanup(f.clean)
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	f.watched, err = observer.WatchPods(ctx, config, name, "", "side", "")
	require.NoError(t, err)
	f.watched.Expect("side:v1")
	for i := range sets {
		f.add(fmt.Sprintf("%s-%d", name, i), pods, kubelet)
	}
	f.await(observer.Converged(f.pods))
	return f
}

// add creates a SidecarSet with maxUnavailable 50%, and pods of the SidecarSet.
func (f *limitedCluster) add(name string, pods int32, kubelet map[string]string) {
	f.t.Helper()
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v1"}}}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromString("50%"))
	require.NoError(f.t, stack.kube.Create(f.ctx, set))
	f.t.Cleanup(func() {
		require.NoError(f.t, client.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(f.ctx), set)))
	})
	f.sets = append(f.sets, set)
	app := deployment(name, pods)
	app.Namespace, app.Name, app.Spec.Template.Annotations = f.name, name, kubelet
	f.awaitInjection(name)
	require.NoError(f.t, stack.kube.Create(f.ctx, app))
}

func (f *limitedCluster) upgradeAll(image string) {
	f.t.Helper()
	f.watched.Expect(image)
	for i := range f.sets {
		f.upgrade(i, image)
	}
}

func (f *limitedCluster) upgrade(set int, image string) {
	f.t.Helper()
	f.set = f.sets[set]
	f.edit(fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, image))
}

// updated returns the number of pods of each SidecarSet whose spec has the image.
func (f *limitedCluster) updated(image string) map[string]int {
	f.t.Helper()
	var pods corev1.PodList
	require.NoError(f.t, stack.kube.List(f.ctx, &pods, client.InNamespace(f.name)))
	updated := map[string]int{}
	for i := range pods.Items {
		for _, container := range pods.Items[i].Spec.Containers {
			if container.Image == image {
				updated[pods.Items[i].Labels["app"]]++
			}
		}
	}
	return updated
}

// leader waits until a worker other than before is the leader, and returns the name of this worker. Only the
// leader upgrades pods.
func (f *limitedCluster) leader(before string) (name string) {
	f.t.Helper()
	f.poll("a worker to lead", func() (bool, error) {
		lease := &coordinationv1.Lease{}
		err := stack.kube.Get(f.ctx, client.ObjectKey{Namespace: cluster.SystemNamespace, Name: "outrigger-worker"}, lease)
		if err != nil || lease.Spec.HolderIdentity == nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, worker := range f.workers {
			if strings.HasPrefix(*lease.Spec.HolderIdentity, "outrigger-worker@"+worker+"_") {
				name = worker
			}
		}
		return name != "" && name != before, nil
	})
	return name
}

// complete waits until the runs of all SidecarSets have ended, and asserts that at most limit pods were in
// flight.
func (f *limitedCluster) complete(limit int) {
	f.t.Helper()
	f.await(observer.Converged(f.pods))
	f.within(limit)
	for _, f.set = range f.sets {
		f.awaitPhase(protocol.PhaseComplete)
	}
}

// progresses waits until n more pods are upgraded.
func (f *limitedCluster) progresses(n int) {
	f.t.Helper()
	before := f.watched.View().Updated
	f.await(func(v observer.View) bool { return v.Updated >= before+n })
}

// The number of pods in flight never exceeds the cluster-wide limit, with many rollouts in progress and when
// the leading worker is lost.
func TestSpec7_5_TheClusterWideLimitHoldsDuringFailuresOfWorkers(t *testing.T) {
	f := newLimitedCluster(t, "limit", 6, 16, 7, time.Second, map[string]string{readyAfter: "2s"})
	f.upgradeAll("side:v2")
	f.progresses(14)
	leader := f.leader("")
	require.NoError(t, stack.Kill(leader))
	next := f.leader(leader)
	require.NoError(t, stack.StartAgain(f.ctx, leader))
	f.progresses(14)
	require.NoError(t, stack.Stop(next))
	leader = f.leader(next)
	require.NoError(t, stack.StartAgain(f.ctx, next))
	f.progresses(14)
	require.NoError(t, stack.Freeze(leader))
	f.leader(leader)
	f.progresses(7)
	require.NoError(t, stack.Thaw(leader))
	f.complete(7)
	worst, _ := f.watched.Worst()
	assert.Equal(t, 7, worst, "the limit was not reached")
}

// The number of slots is smaller than the number of SidecarSets. Nevertheless, no SidecarSet waits until the
// rollout of another SidecarSet has ended.
func TestSpec7_5_SidecarSetsShareASmallClusterWideLimit(t *testing.T) {
	// The pods are slow, so that all rollouts overlap. A run may start ten seconds late if an overloaded Temporal
	// loses the first workflow task.
	f := newLimitedCluster(t, "turns", 4, 6, 2, 0, map[string]string{readyAfter: "3s"})
	f.upgradeAll("side:v2")
	f.await(func(v observer.View) bool { return v.Updated >= 12 })
	updated := f.updated("side:v2")
	for _, set := range f.sets {
		assert.Greater(t, updated[set.Name], 0, "%v", updated)
		assert.Less(t, updated[set.Name], 6, "%v", updated)
	}
	f.complete(2)
}

// A paused SidecarSet uses slots only until its pods are ready.
func TestSpec7_5_APausedSidecarSetReleasesItsShareOfTheClusterWideLimit(t *testing.T) {
	f := newLimitedCluster(t, "paused", 2, 6, 3, 0, map[string]string{readyAfter: "6s"})
	f.upgrade(0, "side:v2")
	f.watched.Expect("side:v2")
	f.await(func(v observer.View) bool { return v.Updated >= 3 })
	f.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":true}]`)
	f.upgrade(1, "side:v2")
	f.await(func(v observer.View) bool { return v.Ready == f.pods && v.InFlight == 0 && v.Updated >= 9 })
	assert.Less(t, f.updated("side:v2")[f.sets[0].Name], 6)
	f.set = f.sets[0]
	f.edit(`[{"op":"replace","path":"/spec/updateStrategy/paused","value":false}]`)
	f.complete(3)
}

// A reset needs no slot, and releases the slot of a hot pod.
func TestSpec7_5_HotPodsKeepToTheClusterWideLimit(t *testing.T) {
	newLimitedCluster(t, "hot", 0, 0, 2, 0, nil)
	s := newScenario(t, 8, hot(4))
	s.upgradeTo("side:v2")
	s.await(observer.Converged(8))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
}
