package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// newByHandScenario creates a scenario with n pods on a node without a kubelet. The test writes the status of
// the pods.
func newByHandScenario(t *testing.T, n int) *scenario {
	t.Helper()
	s := newScenario(t, 0, nil)
	for i := range n {
		s.byHand(fmt.Sprintf("pod-%d", i))
	}
	s.await(func(v observer.View) bool { return v.Ready == n })
	return s
}

// byHand creates a pod on a node without a kubelet, and reports that the pod is running.
func (s *scenario) byHand(name string) {
	s.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name, Labels: map[string]string{"app": s.name}}}
	pod.Spec.NodeName = "by-hand"
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	require.NoError(s.t, stack.kube.Create(s.ctx, pod))
	s.report(name, "side:v1", "sha256:same", 0)
}

// report writes the status of a ready pod like a kubelet. image, imageID and restarts are the status of the
// sidecar.
func (s *scenario) report(name, image, imageID string, restarts int32) {
	s.t.Helper()
	s.reportReady(corev1.ConditionTrue, name, image, imageID, restarts)
}

// reportReady writes the status of a pod like report, with ready as the status of the condition Ready.
func (s *scenario) reportReady(ready corev1.ConditionStatus, name, image, imageID string, restarts int32) {
	s.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(s.t, stack.kube.Get(s.ctx, client.ObjectKey{Namespace: s.name, Name: name}, pod))
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}, {Type: corev1.ContainersReady, Status: ready}}
	statuses := func(containers []corev1.Container) (all []corev1.ContainerStatus) {
		for i := range containers {
			status := corev1.ContainerStatus{Name: containers[i].Name, Image: "app:1", ImageID: "sha256:app", Ready: ready == corev1.ConditionTrue}
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
			if status.Name == "side" {
				status.Image, status.ImageID, status.RestartCount = image, imageID, restarts
			}
			all = append(all, status)
		}
		return all
	}
	pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = statuses(pod.Spec.InitContainers), statuses(pod.Spec.Containers)
	require.NoError(s.t, stack.kube.Status().Patch(s.ctx, pod, client.MergeFrom(before)))
}

// images returns the names of the pods whose spec has an image of the sidecar.
func (s *scenario) images(image string) (names []string) {
	for _, pod := range s.pods() {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if c.Name == "side" && c.Image == image {
				names = append(names, pod.Name)
			}
		}
	}
	return names
}

// If the node already has the image of the new tag, the kubelet reports the same image and imageID. Only the
// restart count shows that the pod is consistent.
func TestSpec7_ARetagOfTheSameDigestFinishes(t *testing.T) {
	t.Parallel()
	s := newByHandScenario(t, 4)
	s.upgradeTo("side:v1-again")
	for done := 2; done <= 4; done += 2 {
		s.await(func(v observer.View) bool { return v.Updated == done })
		for _, name := range s.images("side:v1-again") {
			s.report(name, "side:v1", "sha256:same", 1)
		}
	}
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("all pods to be updated and ready", counts(4))
}

// If a node does not respond, the node controller sets the condition Ready of its pods to False. ContainersReady
// remains True. When the nodes of a zone respond again, the pods of the zone must not all restart at the same
// time.
func TestSpec7_2_PodsOfALostNodeAreUpgradedOnceTheNodeResponds(t *testing.T) {
	t.Parallel()
	s := newByHandScenario(t, 4)
	lost := s.pods()[:3]
	respond := func(ready corev1.ConditionStatus) {
		for i := range lost {
			s.patchPodStatus(&lost[i], fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q},{"type":"ContainersReady","status":"True"}]}}`, ready))
		}
	}
	respond(corev1.ConditionFalse)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 1 })
	reported := s.images("side:v2")
	s.report(reported[0], "side:v2", "sha256:v2", 1)
	s.awaitSet("the wait for the nodes", func(set *v1alpha1.SidecarSet) bool {
		progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
		return set.Status.UpdatedReadyPods == 1 && progressing.Reason == v1alpha1.ReasonWaitingForPods &&
			strings.Contains(progressing.Message, "; 3 on nodes that do not respond, such as "+s.name+"/")
	})
	assert.Equal(t, reported, s.images("side:v2"))

	respond(corev1.ConditionTrue)
	for _, updated := range []int{3, 4} {
		s.await(func(v observer.View) bool { return v.Updated == updated })
		for _, name := range s.images("side:v2") {
			if !slices.Contains(reported, name) {
				s.report(name, "side:v2", "sha256:v2", 1)
				reported = append(reported, name)
			}
		}
	}
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("all pods to be updated and ready", counts(4))
	worst, event := s.watched.Worst()
	assert.LessOrEqual(t, worst, 2, "pods in flight at %s", event)
}

func TestSpec7_8_PodsDeletedBetweenTheirWriteAndTheKubeletStopNoOther(t *testing.T) {
	t.Parallel()
	s := newByHandScenario(t, 4)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 2 })
	for _, name := range s.images("side:v2") {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}
		require.NoError(t, stack.kube.Delete(s.ctx, pod, client.GracePeriodSeconds(0)))
	}
	s.await(func(v observer.View) bool { return v.Pods == 2 && v.Updated == 2 })
	for _, name := range s.images("side:v2") {
		s.report(name, "side:v2", "sha256:v2", 1)
	}
	s.awaitPhase(protocol.PhaseComplete)
	worst, event := s.watched.Worst()
	assert.LessOrEqual(t, worst, 2, "pods in flight at %s", event)
}
