package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

// lostNodes returns a cluster with n+1 pods that are not ready on n nodes that do not exist. The first node
// has two pods. reads is incremented for each read of a node. If err is not nil, each read of a node returns
// err.
func lostNodes(t *testing.T, n int, err error, reads *int) testCluster {
	set := sidecarSet(t, "logs")
	objects := []client.Object{set, namespace("default")}
	for i := range n + 1 {
		pod := injectedPod(t, set, fmt.Sprintf("pod-%d", i), set.Annotations[v1alpha1.HashAnnotation])
		pod.Spec.NodeName = fmt.Sprintf("node-%d", i%n)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		objects = append(objects, pod)
	}
	return newInterceptedCluster(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*corev1.Node); ok {
				*reads++
				if err != nil {
					return err
				}
			}
			return c.Get(ctx, key, object, options...)
		},
	}, objects...)
}

func TestWhyAndStatusReadAFewNodesOfStuckPods(t *testing.T) {
	// The line Waiting of the command status names the first pod again.
	for command, repeated := range map[string]int{"why sidecarset/logs": 0, "status logs -o wide": 1} {
		reads := 0
		shown := lostNodes(t, 7, nil, &reads).shows(strings.Fields(command)...)
		assert.Equal(t, maxNodes, reads, command)
		assert.Equal(t, maxNodes+1+repeated, strings.Count(shown, "does not exist: kubectl delete pod"), "%s: one node has two pods: %s", command, shown)
	}
	reads := 0
	shown := lostNodes(t, 1, nil, &reads).shows("why", "pod/pod-1")
	assert.Equal(t, 1, reads)
	assert.Contains(t, shown, "  its node node-0 does not exist: kubectl delete pods -n default --field-selector spec.nodeName=node-0 --force\n")
}

func TestAListFindsLostNodesInOneRequestForPods(t *testing.T) {
	set := sidecarSet(t, "logs")
	objects, asked := []client.Object{set, sidecarSet(t, "mesh", func(s *v1alpha1.SidecarSet) { s.Spec.Selector.MatchLabels["app"] = "mesh" }), namespace("default")}, ""
	for i, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown, ""} {
		pod := injectedPod(t, set, fmt.Sprintf("pod-%d", i), set.Annotations[v1alpha1.HashAnnotation])
		pod.Spec.NodeName = fmt.Sprintf("node-%d", i)
		objects = append(objects, pod)
		if status != "" {
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
			node.Name = pod.Spec.NodeName
			objects = append(objects, node)
		}
	}
	cluster := newInterceptedCluster(t, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			pods, ok := list.(*corev1.PodList)
			if !ok {
				return c.List(ctx, list, options...)
			}
			wanted := (&client.ListOptions{}).ApplyOptions(options).FieldSelector
			asked = wanted.String()
			err := c.List(ctx, list) // The fake client ignores field selectors.
			pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !wanted.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName}) })
			return err
		},
	}, objects...)
	summaries := read[view.Summaries](t, cluster.shows("list", "-o", "json"))
	assert.Equal(t, "spec.nodeName!=,spec.nodeName!=node-0", asked)
	assert.Subset(t, summaries[0].Attention, []string{"LostNode:node-1", "LostNode:node-2"})
	assert.NotContains(t, strings.Join(summaries[1].Attention, ","), "LostNode")
}

func TestWithoutTheRightToReadNodesTheyAreLeftOut(t *testing.T) {
	for _, command := range []string{"why sidecarset/logs", "status logs", "why pod/pod-1"} {
		reads := 0
		got := lostNodes(t, 1, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-0", nil), &reads).run(strings.Fields(command)...)
		require.NoError(t, got.err)
		assert.Equal(t, 1, reads, command)
		assert.NotContains(t, got.out+got.errOut, "its node", command)
	}
}
