//go:build large

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// crash makes a container of a pod crash repeatedly. If container is empty, the crashes end.
func (s *scenario) crash(pod *corev1.Pod, container string) {
	s.t.Helper()
	value := "null"
	if container != "" {
		value = fmt.Sprintf("%q", container)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"kwok.outrigger.io/crashed":%s}}}`, value)
	require.NoError(s.t, stack.kube.Patch(s.ctx, pod, client.RawPatch(types.MergePatchType, patch)))
}

func hasImage(pod *corev1.Pod, image string) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Image == image {
			return true
		}
	}
	return false
}

// Five of the 25 upgraded pods crash. After the rollback, 50 edits and a lost run do not roll out the content
// again.
func TestLargeRollbackOf500Pods(t *testing.T) {
	const n = 500
	s := newStagedScenario(t, n, intstr.FromString("10%"),
		outriggerv1.RolloutStep{UpTo: intstr.FromInt32(1)}, bakes(intstr.FromString("5%"), time.Hour), bakes(intstr.FromString("25%"), time.Hour))
	s.patchPolicy(`{"failure":{"maxFailedPods":4,"action":"Rollback"}}`)
	s.awaitGood()
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	var crashed []*corev1.Pod
	pods := s.pods()
	for i := range pods {
		if hasImage(&pods[i], "side:v2") && len(crashed) < 5 {
			s.crash(&pods[i], "side")
			crashed = append(crashed, &pods[i])
		}
	}
	last := time.Now()
	set := s.awaitSet("the quarantine", func(set *v1alpha1.SidecarSet) bool { return set.Status.Rollout.Quarantine != nil })
	took := time.Since(last)
	t.Logf("rolled back %v after the fifth pod crashed: %s", took, set.Status.Rollout.Quarantine.Reason)
	for _, pod := range crashed {
		s.crash(pod, "")
	}
	s.watched.Expect("side:v1")
	s.await(observer.Converged(n))
	t.Logf("%d of %d pods got the new content", s.watched.Asked("side:v2"), n)
	for i := range 25 {
		s.edit(fmt.Sprintf(`[{"op":"add","path":"/spec/updateStrategy/maxUnavailable","value":%d}]`, 40+i))
		s.edit(`[{"op":"add","path":"/spec/updateStrategy/maxUnavailable","value":"10%"}]`)
	}
	s.terminate()
	s.awaitReason(v1alpha1.ReasonQuarantined)
	s.scale(n + 100)
	s.await(observer.Converged(n + 100))
	assert.LessOrEqual(t, s.watched.Asked("side:v2"), n*6/100)
	assert.LessOrEqual(t, took, 10*time.Second, "the time until the rollback")
	worst, at := s.watched.Worst()
	t.Logf("at most %d of 50 pods were unavailable by upgrades", worst)
	assert.LessOrEqual(t, worst, 50, at)
}

// A tenth of the nodes, with pods of both versions, fails and recovers.
func TestLargeRolloutOutlivesDeadNodes(t *testing.T) {
	const nodes, n = 10, 500
	for i := 4; i < nodes; i++ {
		addNode(t, fmt.Sprint("node-", i+1))
	}
	s := newStagedScenario(t, n, intstr.FromString("20%"), bakes(intstr.FromString("50%"), 20*time.Second), outriggerv1.RolloutStep{UpTo: intstr.FromString("100%")})
	s.patchPolicy(`{"failure":{"maxFailedPods":"2%","unreadyFor":"3s","action":"Rollback"}}`)
	s.awaitGood()
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	var dead []*corev1.Pod
	dying, versions := "", map[bool]int{}
	pods := s.pods()
	for i := range pods {
		pod := &pods[i]
		if dying == "" {
			dying = pod.Spec.NodeName
		}
		if pod.Spec.NodeName == dying {
			s.crash(pod, "app")
			dead = append(dead, pod)
			versions[hasImage(pod, "side:v2")]++
		}
	}
	require.NotZero(t, versions[true], "pods of the node with the new version")
	require.NotZero(t, versions[false], "pods of the node with the old version")
	t.Logf("%s dies with %d upgraded and %d old pods of %d", dying, versions[true], versions[false], n)
	s.await(func(v observer.View) bool { return v.Updated > n/2+n/10 }) // The bake time has ended.
	for _, pod := range dead {
		s.crash(pod, "")
	}
	s.await(observer.Converged(n))
	set := s.awaitSet("the end", func(set *v1alpha1.SidecarSet) bool { return set.Status.UpdatedReadyPods == n })
	assert.Nil(t, set.Status.Rollout.Quarantine)
	assert.Nil(t, set.Status.Rollout.Pause)
}

// addNode adds a copy of the first node.
func addNode(t *testing.T, name string) {
	t.Helper()
	first := &corev1.Node{}
	require.NoError(t, stack.kube.Get(t.Context(), client.ObjectKey{Name: "node-1"}, first))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}}}
	node.Status.Capacity, node.Status.Allocatable = first.Status.Capacity, first.Status.Allocatable
	require.NoError(t, stack.kube.Create(t.Context(), node))
}
