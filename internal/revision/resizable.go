package revision

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// maxResizable limits the length of status.resizableHashes.
const maxResizable = 64

// ResizableHashes returns the hashes without images of a completed SidecarSet and of the revisions that differ
// from the SidecarSet only in images and amounts of CPU and memory (SPEC §7.9). The result is sorted and
// contains at most maxResizable hashes, of the newest revisions. The result is nil if no revision differs in
// amounts. A revision that cannot be read is omitted.
func ResizableHashes(set *v1alpha1.SidecarSet, revisions []*appsv1.ControllerRevision) ([]string, error) {
	own := set.Annotations[v1alpha1.HashWithoutImageAnnotation]
	hashes := []string{own}
	ownWithoutAmounts := ""
	for _, recorded := range slices.Backward(revisions) {
		hash := recorded.Annotations[v1alpha1.HashWithoutImageAnnotation]
		if hash == "" || slices.Contains(hashes, hash) || len(hashes) == maxResizable {
			continue
		}
		var spec v1alpha1.SidecarSetSpec
		if Restore(recorded.Data.Raw, &spec) != nil {
			continue
		}
		if ownWithoutAmounts == "" {
			var err error
			if ownWithoutAmounts, err = hashWithoutAmounts(&set.Spec); err != nil {
				return nil, err
			}
		}
		if other, err := hashWithoutAmounts(&spec); err == nil && other == ownWithoutAmounts {
			hashes = append(hashes, hash)
		}
	}
	if len(hashes) == 1 {
		return nil, nil
	}
	slices.Sort(hashes)
	return hashes, nil
}

// hashWithoutAmounts returns the hash of a copy of a spec in which all images are empty. In containers that a
// kubelet can resize, all CPU and memory requests and limits that are present are 0. The hash depends on which
// requests and limits are present, because a resize cannot remove a request or a limit.
func hashWithoutAmounts(spec *v1alpha1.SidecarSetSpec) (string, error) {
	containers, initContainers := withoutImages(spec.Containers), withoutImages(spec.InitContainers)
	for i := range containers {
		containers[i].Resources = withoutAmounts(containers[i].Resources)
	}
	for i := range initContainers {
		if IsNativeSidecar(&initContainers[i].Container) {
			initContainers[i].Resources = withoutAmounts(initContainers[i].Resources)
		}
	}
	return hashOf(containers, initContainers)
}

func withoutAmounts(requirements corev1.ResourceRequirements) corev1.ResourceRequirements {
	cleared := CompletedResources(requirements)
	for _, list := range []corev1.ResourceList{cleared.Requests, cleared.Limits} {
		for _, name := range ResizableResources() {
			if _, present := list[name]; present {
				list[name] = resource.Quantity{}
			}
		}
	}
	return cleared
}

// ResizableResources returns the resources that a kubelet can resize.
func ResizableResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// CompletedResources returns a copy of the resources of a container as the API server completes them
// in a new pod: a limit without a request is also the request.
func CompletedResources(requirements corev1.ResourceRequirements) corev1.ResourceRequirements {
	completed := *requirements.DeepCopy()
	for name, limit := range completed.Limits {
		if _, present := completed.Requests[name]; !present {
			if completed.Requests == nil {
				completed.Requests = corev1.ResourceList{}
			}
			completed.Requests[name] = limit.DeepCopy()
		}
	}
	return completed
}
