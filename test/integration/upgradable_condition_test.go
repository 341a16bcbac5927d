package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// upgradableCondition returns the condition SidecarSetUpgradable of a pod as text, with its times, or an
// empty string.
func upgradableCondition(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1alpha1.UpgradableCondition {
			return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message, " ", c.LastTransitionTime, c.LastProbeTime)
		}
	}
	return ""
}

func TestSpec7_2_EachUpgradedPodGetsItsConditionOnce(t *testing.T) {
	t.Parallel()
	const pods = 6
	s := newScenario(t, pods, nil)
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	events := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", s.name, fields.Everything())

	// The condition of an upgraded pod is written exactly once.
	conditions, converged := map[types.UID]string{}, map[string]int{}
	upgradedWithCondition := func(image string) func(watch.Event) (bool, error) {
		return func(event watch.Event) (bool, error) {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				return false, nil
			}
			if now := upgradableCondition(pod); now != conditions[pod.UID] {
				assert.Empty(t, conditions[pod.UID], "%s had its condition before, and now %s", pod.Name, now)
				assert.Contains(t, now, fmt.Sprintf(`True AllSidecarsetUpgradable {"%s":true}`, s.name))
				assert.Equal(t, image, pod.Spec.Containers[0].Image, "%s had its condition before its upgrade", pod.Name)
				conditions[pod.UID] = now
			}
			if pod.Spec.Containers[0].Image == image && observer.Ready(pod) && upgradableCondition(pod) != "" && pod.Status.ContainerStatuses[0].Image == image {
				converged[pod.Name+image]++
			}
			return len(conditions) == pods && len(converged) >= pods, nil
		}
	}
	s.upgradeTo("side:v2")
	_, err = watchtools.UntilWithSync(s.ctx, events, &corev1.Pod{}, nil, upgradedWithCondition("side:v2"))
	require.NoError(t, err)
	s.await(observer.Converged(pods))
	clear(converged)
	s.upgradeTo("side:v3")
	_, err = watchtools.UntilWithSync(s.ctx, events, &corev1.Pod{}, nil, upgradedWithCondition("side:v3"))
	require.NoError(t, err)
	s.within(2)
}

// The worker writes the condition before the pod is ready, because the old container may need half a minute to
// stop.
func TestSpec7_2_TheConditionIsDueWithTheWriteOfTheUpgrade(t *testing.T) {
	t.Parallel()
	s := newByHandScenario(t, 3) // The limit of the scenario is two slots.
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 2 && v.InFlight == 2 })
	withCondition := func() (n int) {
		for _, pod := range s.pods() {
			if upgradableCondition(&pod) != "" {
				n++
			}
		}
		return n
	}
	s.poll("the conditions of pods that do not serve, of a rollout that is not over", func() (bool, error) { return withCondition() == 2, nil })
	assert.Equal(t, 2, s.watched.View().InFlight)
}

func TestSpec7_2_PodsLoseTheConditionOfADeletedSet(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 3, nil)
	s.edit(`[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"NEW","value":"x"}]}]`)
	s.awaitConditions("False UpdateImmutableField ")
	require.NoError(t, stack.kube.Delete(s.ctx, s.set))
	s.awaitConditions("True AllSidecarsetUpgradable {} ")
}

func (s *scenario) awaitConditions(prefix string) {
	s.t.Helper()
	s.poll("the condition of all pods to be "+prefix, func() (bool, error) {
		return !slices.ContainsFunc(s.pods(), func(pod corev1.Pod) bool {
			return !strings.HasPrefix(upgradableCondition(&pod), prefix)
		}), nil
	})
}
