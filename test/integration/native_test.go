package integration

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// native makes side a native sidecar, after an ordinary init container.
func native(set *v1alpha1.SidecarSet) {
	side := set.Spec.Containers[0]
	side.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	first := v1alpha1.SidecarContainer{Container: corev1.Container{Name: "a-first", Image: "first:v1"}}
	set.Spec.Containers, set.Spec.InitContainers = nil, []v1alpha1.SidecarContainer{first, side}
}

// upgradeNativeTo changes the image of the native sidecar, and sets the expected image of the pods.
func (s *scenario) upgradeNativeTo(image string) {
	s.t.Helper()
	s.watched.Expect(image)
	s.edit(`[{"op":"replace","path":"/spec/initContainers/1/image","value":"` + image + `"}]`)
}

// firsts returns the sorted images of the ordinary init container in the pods.
func (s *scenario) firsts() (images []string) {
	s.t.Helper()
	for _, pod := range s.pods() {
		at := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "a-first" })
		require.GreaterOrEqual(s.t, at, 0, pod.Name)
		images = append(images, pod.Spec.InitContainers[at].Image)
	}
	slices.Sort(images)
	return images
}

func TestSpec9_1_NativeSidecarsAreUpgradedInPlaceWithinMaxUnavailable(t *testing.T) {
	t.Parallel()
	const pods = 20
	s := newScenario(t, pods, native)
	s.upgradeNativeTo("side:v2")
	view := s.await(observer.Converged(pods))
	assert.Equal(t, int32(pods), view.SidecarRestarts)
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("all pods to be updated and ready", counts(pods))
	s.within(2)

	// An ordinary init container does not run again, so only new pods get the new image.
	s.edit(`[{"op":"replace","path":"/spec/initContainers/0/image","value":"first:v2"}]`)
	assert.Equal(t, pods, s.awaitPhase(protocol.PhaseComplete).Upgraded, "all pods take the version")
	s.awaitSet("all pods to be updated and ready", counts(pods))
	assert.Equal(t, int32(pods), s.watched.View().SidecarRestarts, "nothing restarts")
	assert.Equal(t, slices.Repeat([]string{"first:v1"}, pods), s.firsts())
	s.scale(pods + 1)
	s.await(observer.Converged(pods + 1))
	assert.Equal(t, append(slices.Repeat([]string{"first:v1"}, pods), "first:v2"), s.firsts())
	s.within(2)
}

func TestSpec9_1_ABadImageOfANativeSidecarStopsAtMaxUnavailableAndIsReplaced(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 6, native)
	s.upgradeNativeTo("side:bad")
	s.awaitSet("Degraded to name the image", func(set *v1alpha1.SidecarSet) bool {
		c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionDegraded)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == "ImagePullBackOff"
	})
	s.awaitEvent("ImagePullBackOff")
	s.await(func(v observer.View) bool { return v.Updated == 2 })
	s.upgradeNativeTo("side:v3")
	s.await(observer.Converged(6))
	s.awaitPhase(protocol.PhaseComplete)
	assert.Equal(t, 2, s.watched.Asked("side:bad"))
	s.within(2)
}

func (s *scenario) awaitEvent(reason string) {
	s.t.Helper()
	s.poll("the event "+reason, func() (bool, error) {
		var events corev1.EventList
		err := stack.kube.List(s.ctx, &events, client.InNamespace(metav1.NamespaceDefault))
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == s.set.UID && e.Reason == reason && e.Message != ""
		}), err
	})
}

// A kubelet before 1.33 does not restart a native sidecar after a change of the image. The pods are ready,
// but keep their slots until the sidecar restarts for another reason.
func TestSpec9_1_AnOldKubeletBlocksAtMostMaxUnavailable(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 0, native)
	for _, name := range []string{"pod-0", "pod-1", "pod-2"} {
		s.byHand(name)
	}
	s.await(func(v observer.View) bool { return v.Ready == 3 })
	s.upgradeNativeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 2 })
	// The third pod is upgraded only when a slot is released. The method within asserts this limit.
	s.report(s.images("side:v2")[0], "side:v2", "sha256:v2", 1)
	s.await(func(v observer.View) bool { return v.Updated == 3 })
	for _, name := range s.images("side:v2") {
		s.report(name, "side:v2", "sha256:v2", 1)
	}
	s.awaitPhase(protocol.PhaseComplete)
	s.within(2)
}

func TestSpec9_1_TheNativeSidecarOfAJobIsUpgradedInPlace(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 0, native)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"}}
	job.Spec.Template = deployment(s.name, 1).Spec.Template
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	require.NoError(t, stack.kube.Create(s.ctx, job))
	s.await(observer.Converged(1))
	before := s.pods()[0].UID
	s.upgradeNativeTo("side:v2")
	view := s.await(observer.Converged(1))
	assert.Equal(t, int32(1), view.SidecarRestarts)
	s.awaitPhase(protocol.PhaseComplete)
	s.within(2)
	assert.Equal(t, before, s.pods()[0].UID)
	require.NoError(t, stack.kube.Get(s.ctx, client.ObjectKeyFromObject(job), job))
	assert.Equal(t, []int32{1, 0, 0}, []int32{job.Status.Active, job.Status.Succeeded, job.Status.Failed})
}
