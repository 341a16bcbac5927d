package integration

import (
	"fmt"
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
	"github.com/outrigger/outrigger/dev/witness"
)

// mark is the condition SidecarSetUpgradable of a pod, with its time.
func mark(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1alpha1.UpgradableCondition {
			return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message, " ", c.LastTransitionTime, c.LastProbeTime)
		}
	}
	return ""
}

func TestSpec7_2_EachPodThatIsUpgradedIsMarkedOnce(t *testing.T) {
	const pods = 6
	s := newScene(t, pods, nil)
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	events := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", s.name, fields.Everything())

	// Marks are written to pods that serve, and never again.
	marks, settled := map[types.UID]string{}, map[string]int{}
	upgradedAndMarked := func(image string) func(watch.Event) (bool, error) {
		return func(event watch.Event) (bool, error) {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				return false, nil
			}
			if now := mark(pod); now != marks[pod.UID] {
				assert.Empty(t, marks[pod.UID], "%s was marked before, and now %s", pod.Name, now)
				assert.Contains(t, now, fmt.Sprintf(`True AllSidecarsetUpgradable {"%s":true}`, s.name))
				assert.True(t, witness.Ready(pod), "%s was marked before it was ready", pod.Name)
				marks[pod.UID] = now
			}
			if pod.Spec.Containers[0].Image == image && witness.Ready(pod) && mark(pod) != "" && pod.Status.ContainerStatuses[0].Image == image {
				settled[pod.Name+image]++
			}
			return len(marks) == pods && len(settled) >= pods, nil
		}
	}
	s.upgradeTo("side:v2")
	_, err = watchtools.UntilWithSync(s.ctx, events, &corev1.Pod{}, nil, upgradedAndMarked("side:v2"))
	require.NoError(t, err)
	s.await(witness.Settled(pods))
	clear(settled)
	s.upgradeTo("side:v3")
	_, err = watchtools.UntilWithSync(s.ctx, events, &corev1.Pod{}, nil, upgradedAndMarked("side:v3"))
	require.NoError(t, err)
	s.within(2)
}
