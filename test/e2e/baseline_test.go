//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

const (
	baselinePods   = 20
	maxUnavailable = 5
	// maxFactor is the maximum duration of a rollout, divided by the duration that the kubelet needs without
	// Outrigger.
	maxFactor = 1.5
)

// BenchmarkTwentyPodsFiveUnavailable measures a rollout on a real node. Before and after the rollout, the
// benchmark measures a baseline with the same pods, which is the time that the kubelet needs without
// Outrigger. Each upgrade uses a new image, because the kubelet delays the start of an image that a pod had
// before.
func BenchmarkTwentyPodsFiveUnavailable(b *testing.B) {
	s := newEnvironment(b, maxUnavailable, nil)
	s.deploy(baselinePods, v1)
	images := moves()

	before := s.upgradeAll(images[0])
	rollout := s.rollout(images[1])
	after := s.upgradeAll(images[2])

	s.within(maxUnavailable)
	kubelet := (before + after) / 2
	ratio := rollout.Seconds() / kubelet.Seconds()
	b.Logf("%d pods, maxUnavailable %d: the kubelet alone %.1f s before and %.1f s after, the rollout %.1f s: %.2f times",
		baselinePods, maxUnavailable, before.Seconds(), after.Seconds(), rollout.Seconds(), ratio)
	b.ReportMetric(0, "ns/op") // ns/op has no meaning in this benchmark.
	b.ReportMetric(kubelet.Seconds(), "kubelet-s")
	b.ReportMetric(rollout.Seconds(), "rollout-s")
	b.ReportMetric(ratio, "times-kubelet")
	require.LessOrEqual(b, ratio, maxFactor, "times what the kubelet alone needs")
}

// rollout upgrades all pods with Outrigger, and returns the duration.
func (s *environment) rollout(image string) time.Duration {
	s.t.Helper()
	began := time.Now()
	s.upgradeTo(image)
	s.await(observer.Converged(baselinePods))
	took := time.Since(began)
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	return took
}

// upgradeAll upgrades all pods without Outrigger, with at most maxUnavailable upgrades in progress, and
// returns the duration.
func (s *environment) upgradeAll(image string) time.Duration {
	s.t.Helper()
	pods := s.pods()
	s.watched.Expect(image)
	began := time.Now()
	slots := make(chan struct{}, maxUnavailable)
	upgraded := make(chan error, len(pods))
	for i := range pods {
		slots <- struct{}{}
		go func() {
			upgraded <- s.upgrade(&pods[i], image)
			<-slots
		}()
	}
	for range pods {
		require.NoError(s.t, <-upgraded)
	}
	s.await(observer.Converged(len(pods)))
	return time.Since(began)
}

// upgrade writes an image into a pod, and waits until the pod is ready with the image.
func (s *environment) upgrade(pod *corev1.Pod, to string) error {
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":%q}]}}`, sidecar, to)
	if err := stack.kube.Patch(s.ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	_, err := s.watched.AwaitPod(s.ctx, pod.UID, func(p *corev1.Pod) bool {
		return observer.Ready(p) && containers(p)[sidecar].Image == to
	})
	return err
}
