package podstate

import corev1 "k8s.io/api/core/v1"

// FailedStart is a sidecar's container that the kubelet cannot start.
type FailedStart struct {
	Container string
	// Reason is the kubelet's.
	Reason string
	// Image is what the pod asks for; what the kubelet reports may be the one before.
	Image string
}

// FailedStart returns the first of the version's containers that cannot start, twins
// included, or nil.
func (v *Version) FailedStart(pod *corev1.Pod) *FailedStart {
	for _, sidecar := range v.Sidecars {
		for _, name := range sidecar.InPod() {
			reason, failed := StartFailure(Status(pod, name, sidecar.Native))
			if !failed {
				continue
			}
			found := &FailedStart{Container: name, Reason: reason}
			if container := Container(pod, name, sidecar.Native); container != nil {
				found.Image = container.Image
			}
			return found
		}
	}
	return nil
}

// InPod are the names of the sidecar's containers in a pod.
func (s Sidecar) InPod() []string {
	if !s.Hot() {
		return []string{s.Name}
	}
	twins := s.Twins()
	return twins[:]
}
