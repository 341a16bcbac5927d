package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createNodes creates n simulated nodes and waits until pods can be scheduled to n nodes.
func createNodes(ctx context.Context, kube client.Client, n int) error {
	for i := range n {
		node := simulatedNode(fmt.Sprintf("node-%d", i+1))
		if err := kube.Create(ctx, node); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create node %s: %w", node.Name, err)
		}
	}
	return Poll(ctx, "wait for the nodes (see the logs of kwok and of the controller manager)", pollWithin, func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := kube.List(ctx, &nodes); err != nil {
			return err
		}
		ready := slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool { return !Schedulable(&node) })
		if len(ready) < n {
			return fmt.Errorf("%d of %d are ready", len(ready), n)
		}
		return nil
	})
}

func simulatedNode(name string) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1k"),
		corev1.ResourceMemory: resource.MustParse("4Ti"),
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelArchStable: "amd64",
			corev1.LabelOSStable:   "linux",
		}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// Schedulable reports whether pods can be scheduled to a node. The node must be Ready and have no
// taint.
func Schedulable(node *corev1.Node) bool {
	return len(node.Spec.Taints) == 0 && slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}
