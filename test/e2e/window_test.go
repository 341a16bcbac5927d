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
	"github.com/outrigger/outrigger/dev/witness"
)

const (
	windowPods = 20
	window     = 5
	// timesKubelet is what a rollout may take of the time that the kubelet needs.
	timesKubelet = 1.5
)

// BenchmarkTwentyPodsWithAWindowOfFive measures a rollout on a real node and, before and
// after it, what the kubelet alone needs: the same pods, moved by who knows nothing but pods, an image
// and a window. A pod that goes back to an image would meet the kubelet's back-off, so
// each time it is a new one.
func BenchmarkTwentyPodsWithAWindowOfFive(b *testing.B) {
	s := newScene(b, window, nil)
	s.deploy(windowPods, v1)
	images := moves()

	before := s.moveAll(images[0])
	rollout := s.rollout(images[1])
	after := s.moveAll(images[2])

	s.within(window)
	kubelet := (before + after) / 2
	ratio := rollout.Seconds() / kubelet.Seconds()
	b.Logf("%d pods, window %d: the kubelet alone %.1f s before and %.1f s after, the rollout %.1f s: %.2f times",
		windowPods, window, before.Seconds(), after.Seconds(), rollout.Seconds(), ratio)
	b.ReportMetric(0, "ns/op") // means nothing here
	b.ReportMetric(kubelet.Seconds(), "kubelet-s")
	b.ReportMetric(rollout.Seconds(), "rollout-s")
	b.ReportMetric(ratio, "times-kubelet")
	require.LessOrEqual(b, ratio, timesKubelet, "times what the kubelet alone needs")
}

// rollout returns what Outrigger needs.
func (s *scene) rollout(image string) time.Duration {
	s.t.Helper()
	began := time.Now()
	s.upgradeTo(image)
	s.await(witness.Settled(windowPods))
	took := time.Since(began)
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	return took
}

// moveAll returns what it takes to move all pods to an image as fast as slots of the
// window are free.
func (s *scene) moveAll(image string) time.Duration {
	s.t.Helper()
	pods := s.pods()
	s.witness.Expect(image)
	began := time.Now()
	slots := make(chan struct{}, window)
	moved := make(chan error, len(pods))
	for i := range pods {
		slots <- struct{}{}
		go func() {
			moved <- s.move(&pods[i], image)
			<-slots
		}()
	}
	for range pods {
		require.NoError(s.t, <-moved)
	}
	s.await(witness.Settled(len(pods)))
	return time.Since(began)
}

// move has a pod's sidecar run an image, and waits until it does.
func (s *scene) move(pod *corev1.Pod, to string) error {
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":%q}]}}`, sidecar, to)
	if err := stack.kube.Patch(s.ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	_, err := s.witness.AwaitPod(s.ctx, pod.UID, func(p *corev1.Pod) bool {
		return witness.Ready(p) && containers(p)[sidecar].Image == to
	})
	return err
}
