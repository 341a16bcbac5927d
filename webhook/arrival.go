package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// podReview is the AdmissionReview of a new pod, as far as injection needs it.
type podReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *arrival `json:"request"`
}

// arrival is a new pod with its request.
type arrival struct {
	UID       types.UID               `json:"uid"`
	Kind      metav1.GroupVersionKind `json:"kind"`
	Namespace string                  `json:"namespace"`
	Object    *newPod                 `json:"object"`
}

// newPod is a pod whose spec is read only once a SidecarSet matches: most of
// the work is there, and most pods match nothing.
type newPod struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        *podMetadata    `json:"metadata"`
	Spec            json.RawMessage `json:"spec"`
	Status          struct {
		Phase corev1.PodPhase `json:"phase"`
	} `json:"status"`
}

// podMetadata leaves out what injection does not read, above all managedFields.
type podMetadata struct {
	Name              string                  `json:"name"`
	GenerateName      string                  `json:"generateName"`
	Namespace         string                  `json:"namespace"`
	DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
	Labels            map[string]string       `json:"labels"`
	Annotations       map[string]string       `json:"annotations"`
	OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
}

var (
	errNoPod  = errors.New("the AdmissionReview is not about a pod of v1")
	errHollow = errors.New("the pod has no metadata or no spec")
)

// readArrival reads an AdmissionReview in one pass.
func readArrival(body []byte) (*arrival, error) {
	var review podReview
	if err := utiljson.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("read the AdmissionReview: %w", err)
	}
	if err := checkReview(review.TypeMeta, review.Request != nil); err != nil {
		return nil, err
	}
	request := review.Request
	if request.Object == nil || !isPod(request.Kind.Group, request.Kind.Version, request.Kind.Kind) {
		return nil, errNoPod
	}
	object := request.Object.GroupVersionKind()
	if !isPod(object.Group, object.Version, object.Kind) {
		return nil, errNoPod
	}
	if request.Object.Metadata == nil || len(request.Object.Spec) == 0 || request.Object.Spec[0] != '{' {
		return nil, errHollow
	}
	return request, nil
}

// isPod takes a kind that is not told for a pod: nothing else is sent here.
func isPod(group, version, kind string) bool {
	return kind == "" || group == "" && version == "v1" && kind == "Pod"
}

// pod is the pod without its spec. An empty namespace is the request's (SPEC §3).
func (a *arrival) pod() *corev1.Pod {
	told := a.Object.Metadata
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: told.Name, GenerateName: told.GenerateName, Namespace: told.Namespace, DeletionTimestamp: told.DeletionTimestamp,
		Labels: told.Labels, Annotations: told.Annotations, OwnerReferences: told.OwnerReferences,
	}}
	pod.Status.Phase = a.Object.Status.Phase
	if pod.Namespace == "" {
		pod.Namespace = a.Namespace
	}
	return pod
}

// podSpec is what injection reads of a spec. The rest would take longer.
type podSpec struct {
	Volumes          []named                       `json:"volumes"`
	InitContainers   []podContainer                `json:"initContainers"`
	Containers       []podContainer                `json:"containers"`
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets"`
}

type named struct {
	Name string `json:"name"`
}

type podContainer struct {
	Name          string                         `json:"name"`
	Env           []corev1.EnvVar                `json:"env"`
	Resources     corev1.ResourceRequirements    `json:"resources"`
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	VolumeMounts  []corev1.VolumeMount           `json:"volumeMounts"`
	VolumeDevices []corev1.VolumeDevice          `json:"volumeDevices"`
}

// readSpec adds to the pod what injection reads of its spec.
func (a *arrival) readSpec(pod *corev1.Pod) error {
	var spec podSpec
	if err := utiljson.Unmarshal(a.Object.Spec, &spec); err != nil {
		return fmt.Errorf("read the pod's spec: %w", err)
	}
	pod.Spec.ImagePullSecrets = spec.ImagePullSecrets
	pod.Spec.InitContainers = containers(spec.InitContainers)
	pod.Spec.Containers = containers(spec.Containers)
	for _, volume := range spec.Volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume.Name})
	}
	return nil
}

func containers(read []podContainer) []corev1.Container {
	all := make([]corev1.Container, len(read))
	for i, c := range read {
		all[i] = corev1.Container{
			Name: c.Name, Env: c.Env, Resources: c.Resources, RestartPolicy: c.RestartPolicy,
			VolumeMounts: c.VolumeMounts, VolumeDevices: c.VolumeDevices,
		}
	}
	return all
}
