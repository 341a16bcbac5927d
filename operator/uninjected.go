package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/kube"
)

// uninjectedPods match a set but were not injected: they are older than the set, or were
// admitted while the webhook was not called. Nothing else shows them.
type uninjectedPods struct {
	count   int
	example string
}

// findUninjected finds them in the namespaces for which the webhook is called.
func (r *reconciler) findUninjected(ctx context.Context, set *v1alpha1.SidecarSet) (uninjectedPods, error) {
	var found uninjectedPods
	scope, err := match.NewScope(&set.Spec)
	if err != nil || set.Spec.InjectionStrategy.Paused {
		return found, err
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingLabelsSelector{Selector: scope.PodSelector()}, client.UnsafeDisableDeepCopy); err != nil {
		return found, fmt.Errorf("list pods that SidecarSet %s selects: %w", set.Name, err)
	}
	covered := r.covers(ctx, scope)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !match.Active(pod) || record.Injected(pod.Annotations, set.Name) {
			continue
		}
		if in, err := covered(pod.Namespace); err != nil {
			return uninjectedPods{}, err
		} else if !in {
			continue
		}
		found.count++
		if name := pod.Namespace + "/" + pod.Name; found.example == "" || name < found.example {
			found.example = name
		}
	}
	return found, nil
}

// covers returns a function that reports whether the webhook is called for the pods of a
// namespace, and the set selects that.
func (r *reconciler) covers(ctx context.Context, scope match.Scope) func(string) (bool, error) {
	labels, known := kube.NamespaceLabels(ctx, r.client), map[string]bool{}
	return func(namespace string) (bool, error) {
		if in, ok := known[namespace]; ok {
			return in, nil
		}
		found, err := labels(namespace)
		if err != nil {
			return false, fmt.Errorf("look up namespace %s: %w", namespace, err)
		}
		known[namespace] = namespace != r.namespace && found[v1alpha1.InjectionLabel] != v1alpha1.InjectionDisabled &&
			scope.Namespace(namespace, found)
		return known[namespace], nil
	}
}
