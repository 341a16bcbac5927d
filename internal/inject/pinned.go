package inject

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// UsesPinned reports whether a new pod gets the pinned revision instead of the newest content
// (SPEC §4.11). A recreated pod with the same name gets the same revision. Pods of a ReplicaSet
// get their names after admission, so they differ only in request. request is the UID of the
// admission request. If the API server repeats a request, the pod gets the same revision again.
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
	kept, of, err := share(strategy.Partition, int64(set.Status.MatchedPods))
	if err != nil {
		return false, fmt.Errorf("updateStrategy.partition: %w", err)
	}
	return podHash(pod, request)%uint64(of) < uint64(kept), nil
}

// share returns the share of the pods that the partition keeps at the pinned revision, as the
// fraction kept/of. A number is relative to the matched pods. Without matched pods, a number
// above zero keeps all pods.
func share(partition *intstr.IntOrString, matched int64) (kept, of int64, err error) {
	switch {
	case partition == nil:
		return 0, 1, nil
	case partition.Type == intstr.Int:
		return max(int64(partition.IntVal), 0), max(matched, 1), nil
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(partition, 100, true)
	if err != nil {
		return 0, 0, err
	}
	return int64(max(percent, 0)), 100, nil
}

// podHash returns a uniform hash of the pod. If the pod has no name yet, the hash covers the
// request instead.
func podHash(pod *corev1.Pod, request types.UID) uint64 {
	identity := []string{pod.Namespace, pod.Name}
	if pod.Name == "" {
		identity = []string{pod.Namespace, pod.GenerateName, string(request)}
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		identity = append(identity, string(owner.UID))
	}
	sum := sha256.Sum256([]byte(strings.Join(identity, "/")))
	return binary.BigEndian.Uint64(sum[:])
}

// PreparePinned prepares a SidecarSet with the content and the hashes of a revision.
func PreparePinned(set *v1alpha1.SidecarSet, pinned *appsv1.ControllerRevision) (*Set, error) {
	restored := set.DeepCopy()
	if err := revision.Restore(pinned.Data.Raw, &restored.Spec); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: inject revision %s: %w", set.Name, pinned.Name, err)
	}
	hashes := map[string]string{}
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
		hashes[key] = pinned.Annotations[key]
	}
	restored.Annotations = hashes
	return Prepare(restored, pinned.Name)
}
