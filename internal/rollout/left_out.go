package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// LeftOutPod is an injected pod that is not matched. The pod has older content and lacks a container of the
// SidecarSet, or the annotations of the pod cannot be read. Unreadable is the error about the annotations, or
// nil.
type LeftOutPod struct {
	*corev1.Pod
	Unreadable error
}

// LeftOut returns the active pods in the scope of a SidecarSet that are injected, but not matched (SPEC §3).
// Pods with the hash of version, the newest version of the SidecarSet, are not returned. LeftOut returns an
// error if a selector is invalid or namespaceLabels fails. Pods in namespaces that do not exist are not returned.
func LeftOut(set *v1alpha1.SidecarSet, version *podstate.Version, pods []*corev1.Pod, namespaceLabels func(string) (map[string]string, error)) ([]LeftOutPod, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	namespaces := namespacesInScope{labels: namespaceLabels, known: map[string]bool{}}
	var found []LeftOutPod
	for _, pod := range pods {
		if !match.Active(pod) || !record.Injected(pod.Annotations, set.Name) || !scope.Labels(pod.Labels) {
			continue
		}
		state, unreadable := version.Of(pod)
		if unreadable == nil && (state.Complete || state.Updated) {
			continue
		}
		in, err := namespaces.contain(scope, pod.Namespace)
		switch {
		case apierrors.IsNotFound(err): // A pod in a deleted namespace must not hide other pods.
		case err != nil:
			return nil, err
		case in:
			found = append(found, LeftOutPod{pod, unreadable})
		}
	}
	return found, nil
}
