package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NamespaceLabels returns a function that reads the labels of a namespace by its name. reader should be a
// cache, because rollouts call the returned function for each pod.
func NamespaceLabels(ctx context.Context, reader client.Reader) func(string) (map[string]string, error) {
	return func(name string) (map[string]string, error) {
		var namespace corev1.Namespace
		if err := reader.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
			return nil, err
		}
		return namespace.Labels, nil
	}
}
