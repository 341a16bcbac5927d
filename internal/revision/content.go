package revision

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// content is the part of a SidecarSet that a revision records. The JSON has the form of existing revisions: all
// keys are present, and an unset key is null. Because of the key $patch, a strategic merge patch replaces the
// spec instead of merging it.
type content struct {
	Spec *marked `json:"spec"`
}

type marked struct {
	Patch string `json:"$patch"`
	versioned
}

const replaceMarker = "replace"

type versioned struct {
	Volumes          []corev1.Volume                       `json:"volumes"`
	Containers       []v1alpha1.SidecarContainer           `json:"containers"`
	InitContainers   []v1alpha1.SidecarContainer           `json:"initContainers"`
	ImagePullSecrets []corev1.LocalObjectReference         `json:"imagePullSecrets"`
	PatchPodMetadata []v1alpha1.SidecarSetPatchPodMetadata `json:"patchPodMetadata"`
}

// brief has the fields of versioned, but omits unset keys. Earlier revisions had this form, and
// the names of revisions still depend on this form.
type brief struct {
	Volumes          []corev1.Volume                       `json:"volumes,omitempty"`
	Containers       []v1alpha1.SidecarContainer           `json:"containers,omitempty"`
	InitContainers   []v1alpha1.SidecarContainer           `json:"initContainers,omitempty"`
	ImagePullSecrets []corev1.LocalObjectReference         `json:"imagePullSecrets,omitempty"`
	PatchPodMetadata []v1alpha1.SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}

var errNoSpec = errors.New(`the key "spec" is missing`)

func versionedPart(spec *v1alpha1.SidecarSetSpec) versioned {
	return versioned{
		Volumes:          orNull(spec.Volumes),
		Containers:       orNull(spec.Containers),
		InitContainers:   orNull(spec.InitContainers),
		ImagePullSecrets: orNull(spec.ImagePullSecrets),
		PatchPodMetadata: orNull(spec.PatchPodMetadata),
	}
}

// orNull returns nil for an empty list.
func orNull[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// Content returns the recorded content of a revision (SPEC §6), as JSON. Equal specs give equal
// bytes.
func Content(spec *v1alpha1.SidecarSetSpec) ([]byte, error) {
	return encoded(content{Spec: &marked{replaceMarker, versionedPart(spec)}})
}

// briefContent returns the content from which Name computes the name of a revision.
func briefContent(spec *v1alpha1.SidecarSetSpec) ([]byte, error) {
	return encoded(map[string]brief{"spec": brief(versionedPart(spec))})
}

func encoded(part any) ([]byte, error) {
	data, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("encode the revisioned part of the spec: %w", err)
	}
	return data, nil
}

// Restore replaces the recorded fields of onto with the content in data (SPEC §4.11). Restore ignores unknown
// keys, and does not change onto on an error.
func Restore(data []byte, onto *v1alpha1.SidecarSetSpec) error {
	recorded, err := decode(data)
	if err != nil {
		return err
	}
	onto.Volumes = recorded.Volumes
	onto.Containers = recorded.Containers
	onto.InitContainers = recorded.InitContainers
	onto.ImagePullSecrets = recorded.ImagePullSecrets
	onto.PatchPodMetadata = recorded.PatchPodMetadata
	return nil
}

// WithContentOf returns a copy of a SidecarSet with the content of a recorded revision. The hashes of the
// revision are the only annotations of the copy.
func WithContentOf(set *v1alpha1.SidecarSet, recorded *appsv1.ControllerRevision) (*v1alpha1.SidecarSet, error) {
	restored := set.DeepCopy()
	if err := Restore(recorded.Data.Raw, &restored.Spec); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: read revision %s: %w", set.Name, recorded.Name, err)
	}
	restored.Annotations = map[string]string{}
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation} {
		restored.Annotations[key] = recorded.Annotations[key]
	}
	return restored, nil
}

// Equal reports whether two recorded contents have the same meaning. Content that cannot be parsed is equal
// only to the same bytes.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	first, err := decode(a)
	if err != nil {
		return false
	}
	second, err := decode(b)
	if err != nil {
		return false
	}
	return equality.Semantic.DeepEqual(first, second)
}

func decode(data []byte) (*versioned, error) {
	var recorded content
	if err := json.Unmarshal(data, &recorded); err != nil {
		return nil, fmt.Errorf("read the content of a revision: %w", err)
	}
	if recorded.Spec == nil {
		return nil, fmt.Errorf("read the content of a revision: %w", errNoSpec)
	}
	return &recorded.Spec.versioned, nil
}
