package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// An entry of the condition means that a SidecarSet cannot upgrade the pod. The entry of a deleted SidecarSet is
// outdated.
func TestSpec7_2_PodsLoseTheEntriesOfDeletedSets(t *testing.T) {
	rejected := func(message string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations[v1alpha1.InjectedListAnnotation] += ",gone,lost"
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: v1alpha1.UpgradableCondition, Status: corev1.ConditionFalse, Message: message})
		}
	}
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("can", rejected(`{"gone":false}`)), webPod("cannot", rejected(`{"lost":false,"logs":false}`)))
	cluster.Status, cluster.Deleted = cluster.Live.(client.Client).Status(), NewDeletedSets()
	messages := func() map[string]string {
		found := map[string]string{}
		for _, name := range []string{"can", "cannot"} {
			pod, err := readPod(t.Context(), cluster.Live, refTo(name))
			require.NoError(t, err)
			for _, condition := range pod.Status.Conditions {
				if condition.Type == v1alpha1.UpgradableCondition {
					found[name] = string(condition.Status) + condition.Message
				}
			}
		}
		return found
	}
	ctx, end := context.WithCancel(t.Context())
	end() // CleanUp still processes the queued SidecarSets
	require.NoError(t, cluster.CleanUp(ctx))
	assert.Equal(t, map[string]string{"can": "True{}", "cannot": `False{"logs":false}`}, messages())
}
