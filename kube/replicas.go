package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Replicas returns the desired number of pods of a workload: the field spec.replicas, or
// status.desiredNumberScheduled of a DaemonSet. known is false for a workload without these fields.
func Replicas(ctx context.Context, reader client.Reader, kind schema.GroupVersionKind, workload client.ObjectKey) (replicas int, known bool, err error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := reader.Get(ctx, workload, object); err != nil {
		return 0, false, fmt.Errorf("read %s %s: %w", kind.Kind, workload, err)
	}
	for _, field := range [][]string{{"spec", "replicas"}, {"status", "desiredNumberScheduled"}} {
		if n, found, _ := unstructured.NestedInt64(object.Object, field...); found {
			return int(n), true, nil
		}
	}
	return 0, false, nil
}
