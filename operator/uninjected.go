package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/record"
)

// uninjectedPods match a set but lack it: they are older than the set, or were
// admitted while the webhook was not asked. Nobody else would tell.
type uninjectedPods struct {
	count   int
	example string
}

// findUninjected looks for them where the webhook is asked at all.
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
	asked := r.askedFor(ctx, scope)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !match.Active(pod) || record.Injected(pod.Annotations, set.Name) {
			continue
		}
		if in, err := asked(pod.Namespace); err != nil {
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

// askedFor reports whether the webhook is asked about a namespace's pods, and the
// set wants them.
func (r *reconciler) askedFor(ctx context.Context, scope match.Scope) func(string) (bool, error) {
	labels, known := r.namespaceLabels(ctx), map[string]bool{}
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

func (o *observation) injected() condition {
	if o.invalid != nil {
		return condition{metav1.ConditionUnknown, reasonInvalid, podsUnknown}
	}
	if o.uninjected.count == 0 {
		return condition{metav1.ConditionTrue, v1alpha1.ReasonAsExpected, ""}
	}
	return condition{metav1.ConditionFalse, v1alpha1.ReasonPodsWithoutSidecar,
		fmt.Sprintf("%d pods match but were not injected, such as %s; they get the sidecars once they are created anew", o.uninjected.count, o.uninjected.example)}
}
