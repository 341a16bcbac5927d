package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TaskQueue returns the Temporal task queue of the rollouts of this cluster. If override is empty, the task
// queue is the UID of namespace kube-system. Therefore, several clusters can share one Temporal namespace.
// reader must not be a cache, because TaskQueue is called before the caches start.
func TaskQueue(ctx context.Context, reader client.Reader, override string) (string, error) {
	if override != "" {
		return override, nil
	}
	var system corev1.Namespace
	if err := reader.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, &system); err != nil {
		return "", fmt.Errorf("name the task queue after namespace %s: %w (name one with --task-queue)", metav1.NamespaceSystem, err)
	}
	return string(system.UID), nil
}
