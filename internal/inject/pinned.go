package inject

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// UsesPinned reports whether a new pod gets the pinned revision instead of the newest content (SPEC §4.11).
// request is the UID of the admission request. A recreated pod with the same name and controller gets the same
// revision. The API server names the pods of a ReplicaSet after admission, so only request differs between pods
// of a ReplicaSet. A retry of the same request gives the same result.
func UsesPinned(set *v1alpha1.SidecarSet, pod *corev1.Pod, request types.UID) (bool, error) {
	pinned, strategy := set.Spec.InjectionStrategy.Revision, &set.Spec.UpdateStrategy
	switch {
	case pinned == nil:
		return false, nil
	case pinned.Policy != v1alpha1.PartialSidecarSetInjectRevisionPolicy, strategy.Paused:
		return true, nil
	case strategy.Selector != nil:
		selector, err := metav1.LabelSelectorAsSelector(strategy.Selector)
		if err != nil {
			return false, fmt.Errorf("updateStrategy.selector: %w", err)
		}
		return !selector.Matches(labels.Set(pod.Labels)), nil
	}
	if strategy.Partition == nil {
		return false, nil
	}
	kept, err := ShareOf(strategy.Partition, set.Status.MatchedPods)
	if err != nil {
		return false, fmt.Errorf("updateStrategy.partition: %w", err)
	}
	return kept.Includes(pod, request), nil
}

// PreparePinned prepares a SidecarSet with the content and the hashes of a revision. PreparePinned returns an
// error if the content cannot be read.
func PreparePinned(set *v1alpha1.SidecarSet, pinned *appsv1.ControllerRevision) (*Set, error) {
	restored, err := revision.WithContentOf(set, pinned)
	if err != nil {
		return nil, err
	}
	return Prepare(restored, pinned.Name)
}
