package rollout

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/record"
)

// Uninjected returns the active pods that a SidecarSet selects, that are not injected, and for which the API
// server calls the webhook. Uninjected returns no pods while the injection is paused. If namespaces do not
// exist, Uninjected returns the pods of the other namespaces and a NotFound error.
func Uninjected(set *v1alpha1.SidecarSet, pods []*corev1.Pod, webhook match.Webhook, namespaceLabels func(string) (map[string]string, error)) ([]*corev1.Pod, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil || set.Spec.InjectionStrategy.Paused {
		return nil, err
	}
	var found []*corev1.Pod
	var missing error
	covered := map[string]bool{}
	for _, pod := range pods {
		if !scope.Labels(pod.Labels) || !match.Active(pod) || !webhook.Pod(pod) || record.Injected(pod.Annotations, set.Name) {
			continue
		}
		in, known := covered[pod.Namespace]
		if !known {
			of, err := namespaceLabels(pod.Namespace)
			if err != nil {
				err = fmt.Errorf("look up namespace %s: %w", pod.Namespace, err)
			}
			switch {
			case apierrors.IsNotFound(err):
				missing, covered[pod.Namespace] = cmp.Or(missing, err), false
				continue
			case err != nil:
				return nil, err
			}
			in = webhook.Namespace(pod.Namespace, of) && scope.Namespace(pod.Namespace, of)
			covered[pod.Namespace] = in
		}
		if in {
			found = append(found, pod)
		}
	}
	return found, missing
}
