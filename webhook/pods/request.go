package pods

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/webhook/review"
)

// podReview has the fields of a new pod's AdmissionReview that injection needs.
type podReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *podRequest `json:"request"`
}

// podRequest is a request to create a pod.
type podRequest struct {
	UID       types.UID               `json:"uid"`
	Kind      metav1.GroupVersionKind `json:"kind"`
	Namespace string                  `json:"namespace"`
	Object    *partialPod             `json:"object"`
	// specErr is a parse error of the pod's spec.
	specErr error
}

// partialPod has the fields of a pod that injection reads. Decoding all fields, especially managedFields,
// would take longer. status and deletionTimestamp are omitted, because the API server has not reset these
// fields yet, so the values come from the client and have no meaning.
type partialPod struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        *podMetadata `json:"metadata"`
	Spec            *podSpec     `json:"spec"`
}

type podMetadata struct {
	Name            string                  `json:"name"`
	GenerateName    string                  `json:"generateName"`
	Namespace       string                  `json:"namespace"`
	Labels          map[string]string       `json:"labels"`
	Annotations     map[string]string       `json:"annotations"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
}

var (
	errNoPod         = errors.New("the AdmissionReview is not for a pod of version v1")
	errIncompletePod = errors.New("the pod has no metadata or no spec")
)

// readPodRequest decodes an AdmissionReview. If only the spec of the pod cannot be decoded, readPodRequest
// returns the other fields and sets specErr.
func readPodRequest(body []byte) (*podRequest, error) {
	var read podReview
	if err := json.Unmarshal(body, &read); err != nil {
		if read = withoutSpec(body); read.Request == nil {
			return nil, fmt.Errorf("read the AdmissionReview: %w", err)
		}
		read.Request.specErr = fmt.Errorf("read the pod's spec: %w", err)
	}
	if err := review.Check(read.TypeMeta, read.Request != nil); err != nil {
		return nil, err
	}
	request := read.Request
	if request.Object == nil || !isPod(request.Kind.Group, request.Kind.Version, request.Kind.Kind) {
		return nil, errNoPod
	}
	object := request.Object.GroupVersionKind()
	if !isPod(object.Group, object.Version, object.Kind) {
		return nil, errNoPod
	}
	if request.Object.Metadata == nil || request.Object.Spec == nil && request.specErr == nil {
		return nil, errIncompletePod
	}
	return request, nil
}

// withoutSpec decodes a review of a pod whose spec cannot be decoded.
func withoutSpec(body []byte) podReview {
	var read struct {
		metav1.TypeMeta `json:",inline"`
		Request         *struct {
			podRequest
			Object *struct {
				partialPod
				Spec jsontext.Value `json:"spec"`
			} `json:"object"`
		} `json:"request"`
	}
	if err := json.Unmarshal(body, &read); err != nil || read.Request == nil || read.Request.Object == nil {
		return podReview{}
	}
	request := &read.Request.podRequest
	request.Object = &read.Request.Object.partialPod
	return podReview{TypeMeta: read.TypeMeta, Request: request}
}

// isPod reports whether a kind is the kind of pods. An empty kind counts as a pod, because the rules of the
// webhook match only pods.
func isPod(group, version, kind string) bool {
	return kind == "" || group == "" && version == "v1" && kind == "Pod"
}

// pod returns the decoded fields of the pod. The namespace of the request replaces an empty
// namespace (SPEC §3).
func (r *podRequest) pod() *corev1.Pod {
	metadata := r.Object.Metadata
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: metadata.Name, GenerateName: metadata.GenerateName, Namespace: metadata.Namespace,
		Labels: metadata.Labels, Annotations: metadata.Annotations, OwnerReferences: metadata.OwnerReferences,
	}}
	if pod.Namespace == "" {
		pod.Namespace = r.Namespace
	}
	if r.Object.Spec != nil {
		pod.Spec = r.Object.Spec.read()
	}
	return pod
}

type podSpec struct {
	Volumes          []named                       `json:"volumes"`
	InitContainers   []podContainer                `json:"initContainers"`
	Containers       []podContainer                `json:"containers"`
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets"`
	Resources        *corev1.ResourceRequirements  `json:"resources"`
	HostNetwork      bool                          `json:"hostNetwork"`
}

type named struct {
	Name string `json:"name"`
}

type podContainer struct {
	Name          string                         `json:"name"`
	Env           []corev1.EnvVar                `json:"env"`
	EnvFrom       []corev1.EnvFromSource         `json:"envFrom"`
	Resources     corev1.ResourceRequirements    `json:"resources"`
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	VolumeMounts  []corev1.VolumeMount           `json:"volumeMounts"`
	VolumeDevices []corev1.VolumeDevice          `json:"volumeDevices"`
}

func (s *podSpec) read() corev1.PodSpec {
	spec := corev1.PodSpec{
		ImagePullSecrets: s.ImagePullSecrets, InitContainers: containers(s.InitContainers), Containers: containers(s.Containers),
		Volumes: make([]corev1.Volume, len(s.Volumes)), Resources: s.Resources, HostNetwork: s.HostNetwork,
	}
	for i, volume := range s.Volumes {
		spec.Volumes[i].Name = volume.Name
	}
	return spec
}

func containers(read []podContainer) []corev1.Container {
	all := make([]corev1.Container, len(read))
	for i, c := range read {
		all[i] = corev1.Container{
			Name: c.Name, Env: c.Env, EnvFrom: c.EnvFrom, Resources: c.Resources, RestartPolicy: c.RestartPolicy,
			VolumeMounts: c.VolumeMounts, VolumeDevices: c.VolumeDevices,
		}
	}
	return all
}
