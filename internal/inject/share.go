package inject

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Share is a share of the new pods, as the fraction Part/Of. If two shares have the same Of, the larger share
// includes every pod of the smaller share. The zero value is the share of no pods.
type Share struct{ Part, Of int64 }

// AllPods returns the share of all pods.
func AllPods() Share { return Share{Part: 1, Of: 1} }

// ShareOf converts a number or a percentage of pods to a share. A number is divided by the number of matched
// pods. Without matched pods, a number above zero is the share of all pods. ShareOf returns an error for a text
// that is not a percentage.
func ShareOf(pods *intstr.IntOrString, matched int32) (Share, error) {
	if pods.Type == intstr.Int {
		return Share{Part: max(int64(pods.IntVal), 0), Of: max(int64(matched), 1)}, nil
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(pods, 100, true)
	if err != nil {
		return Share{}, err
	}
	return Share{Part: int64(max(percent, 0)), Of: 100}, nil
}

// All reports whether the share includes all pods.
func (s Share) All() bool { return s.Part > 0 && s.Part >= s.Of }

// Includes reports whether the share includes a new pod. request is the UID of the admission
// request (SPEC 4.11.8).
func (s Share) Includes(pod *corev1.Pod, request types.UID) bool {
	switch {
	case s.Part <= 0:
		return false
	case s.All():
		return true
	}
	return podHash(pod, request)%uint64(s.Of) < uint64(s.Part)
}

// podHash returns a uniformly distributed hash of the namespace, the name and the controller of the pod. If the
// pod has no name yet, the hash covers generateName and request instead of the name.
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
