// Package record encodes and decodes the annotations that record the SidecarSets of a pod (SPEC §2).
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Entry describes the version of a SidecarSet that a pod has.
type Entry struct {
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	Hash            string      `json:"hash"`
	SidecarSetName  string      `json:"sidecarSetName"`
	// SidecarList contains the sorted names of containers and native sidecars.
	SidecarList []string `json:"sidecarList"`
	// ControllerRevision is empty in the entries of v1alpha1.HashWithoutImageAnnotation.
	ControllerRevision string `json:"controllerRevision,omitempty"`
}

// Entries maps the name of a SidecarSet to its entry.
type Entries map[string]Entry

// State records an in-place upgrade.
type State struct {
	Revision        string      `json:"revision"`
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	// LastContainerStatuses contains the status of each changed container before the change.
	LastContainerStatuses map[string]ContainerStatus `json:"lastContainerStatuses"`
	// SidecarSetVersion is the resourceVersion of the SidecarSet at the upgrade. OpenKruise does
	// not write this field.
	SidecarSetVersion string `json:"sidecarSetVersion,omitempty"`
}

// Ours reports whether Outrigger, and not OpenKruise, wrote the state.
func (s State) Ours() bool {
	for _, before := range s.LastContainerStatuses {
		if before.RestartCount != nil {
			return true
		}
	}
	return s.SidecarSetVersion != ""
}

// ContainerStatus is the status of a container before a change. OpenKruise writes only the
// ImageID.
type ContainerStatus struct {
	ImageID string `json:"imageID"`
	// RestartCount is the restart count before the change. A different count shows a restart even if the new
	// image has the same ID.
	RestartCount *int32 `json:"restartCount,omitempty"`
	// Image is the image string that the container was started with.
	Image string `json:"image,omitempty"`
	// StartFailure is the reason that the kubelet reported for a container that could not start, or Terminated
	// for a container that had ended. StartFailure is empty for all other containers.
	StartFailure string `json:"startFailure,omitempty"`
	// Resizing is set if the resize before the change may also restart the container, so that a single restart
	// does not prove that the kubelet has applied the change.
	Resizing bool `json:"resizing,omitempty"`
}

// States maps the name of a SidecarSet to its newest in-place upgrade of the pod.
type States map[string]State

// Hashes reads the entries of HashAnnotation. Without the annotation, the result is empty.
func Hashes(annotations map[string]string) (Entries, error) {
	return decode[Entries](annotations, v1alpha1.HashAnnotation)
}

// UnmarshalJSON decodes an entry in either form: an object or, in the older form, only the hash as a string. A
// pod may have entries of both forms.
func (e *Entry) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*e = Entry{}
		return json.Unmarshal(data, &e.Hash)
	}
	type plain Entry
	return json.Unmarshal(data, (*plain)(e))
}

// InPlaceStates reads the newest in-place upgrade by each SidecarSet from InPlaceUpdateStateAnnotation.
func InPlaceStates(annotations map[string]string) (States, error) {
	return decode[States](annotations, v1alpha1.InPlaceUpdateStateAnnotation)
}

// ActiveContainers reads the active twin of each hot sidecar.
func ActiveContainers(annotations map[string]string) (map[string]string, error) {
	return decode[map[string]string](annotations, v1alpha1.WorkingHotUpgradeContainerAnnotation)
}

// UnavailableSince returns the transition time of the Ready condition of a pod that was not ready when a
// SidecarSet upgraded the pod (SPEC §7.5). recorded is false if there is no such time. An annotation that
// cannot be parsed counts as absent, so the upgrade counts as the cause of the unavailability.
func UnavailableSince(annotations map[string]string, set string) (since metav1.Time, recorded bool) {
	all, err := decode[map[string]metav1.Time](annotations, v1alpha1.UnavailableSinceAnnotation)
	if err != nil {
		return metav1.Time{}, false
	}
	since, recorded = all[set]
	return since, recorded
}

// WithUnavailableSince replaces the entry of a SidecarSet in UnavailableSinceAnnotation, or removes the entry if
// since is nil. value is the new value of the annotation. changed is false if the annotation stays the same. An
// annotation that cannot be parsed counts as empty.
func WithUnavailableSince(annotations map[string]string, set string, since *metav1.Time) (value string, changed bool, err error) {
	const key = v1alpha1.UnavailableSinceAnnotation
	all, err := decode[map[string]metav1.Time](annotations, key)
	if err != nil {
		all = map[string]metav1.Time{}
	}
	if since == nil {
		if _, recorded := all[set]; !recorded {
			return "", false, nil
		}
		delete(all, set)
	} else {
		all[set] = *since
	}
	value, err = Format(all)
	return value, value != annotations[key], err
}

func decode[M ~map[string]V, V any](annotations map[string]string, key string) (M, error) {
	read := M{}
	value := annotations[key]
	if value == "" {
		return read, nil
	}
	if err := json.Unmarshal([]byte(value), &read); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", key, err)
	}
	if read == nil {
		return nil, fmt.Errorf("annotation %s: %w", key, errNull)
	}
	return read, nil
}

var errNull = errors.New("a JSON object is expected, not null")

// MaxInjectedSets limits the names that are read from the list of a pod. Otherwise, a hostile pod with a long
// list could exhaust the memory of every process that indexes pods by SidecarSet.
const MaxInjectedSets = 256

// InjectedSets reads the names of the SidecarSets that are injected into a pod, at most MaxInjectedSets names
// (SPEC 3.8).
func InjectedSets(annotations map[string]string) []string {
	value := annotations[v1alpha1.InjectedListAnnotation]
	if value == "" {
		return nil
	}
	names := strings.SplitN(value, ",", MaxInjectedSets+1)
	return names[:min(len(names), MaxInjectedSets)]
}

// Injected reports whether the first MaxInjectedSets names in the list of a pod include a SidecarSet.
func Injected(annotations map[string]string, set string) bool {
	read := 0
	for name := range strings.SplitSeq(annotations[v1alpha1.InjectedListAnnotation], ",") {
		if read++; read > MaxInjectedSets {
			return false
		}
		if name == set {
			return true
		}
	}
	return false
}

// FormatInjectedSets encodes the names as a sorted list without duplicates.
func FormatInjectedSets(names []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ",")
}

// Format encodes the value of an annotation with sorted keys.
func Format[V any](value map[string]V) (string, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode annotation: %w", err)
	}
	return string(encoded), nil
}

// With returns the value of an annotation with the entries of some SidecarSets replaced. Other entries keep all
// fields, including unknown fields. With returns an error if the annotation cannot be parsed.
func With[E any](annotations map[string]string, key string, entries map[string]E) (string, error) {
	all, err := decode[map[string]json.RawMessage](annotations, key)
	if err != nil {
		return "", err
	}
	for set, entry := range entries {
		if all[set], err = json.Marshal(entry); err != nil {
			return "", fmt.Errorf("encode the entry of %s in annotation %s: %w", set, key, err)
		}
	}
	return Format(all)
}

// WithoutUpgrades returns new values for the annotations that record upgrades by these SidecarSets. The new
// values do not contain these records. The result omits annotations that do not change or cannot be parsed.
func WithoutUpgrades(annotations map[string]string, sets []string) map[string]string {
	changes := map[string]string{}
	for _, key := range []string{v1alpha1.InPlaceUpdateStateAnnotation, v1alpha1.UnavailableSinceAnnotation, v1alpha1.ResizeAnnotation} {
		if annotations[key] == "" {
			continue // Almost every new pod lacks the annotation, so decoding is rarely necessary.
		}
		all, err := decode[map[string]json.RawMessage](annotations, key)
		before := len(all)
		maps.DeleteFunc(all, func(set string, _ json.RawMessage) bool { return slices.Contains(sets, set) })
		if err != nil || len(all) == before {
			continue
		}
		if value, err := Format(all); err == nil {
			changes[key] = value
		}
	}
	return changes
}

// WithoutResize returns the value of ResizeAnnotation without the entry of a SidecarSet.
func WithoutResize(read *Record, set string) (string, error) {
	left := maps.Clone(read.Resizes)
	delete(left, set)
	return Format(left)
}

// Resize returns the hash of the content of the last resize of a pod by a SidecarSet, including a resize in
// progress. Resize returns "" if the pod has no such record, or if the annotation cannot be parsed.
func Resize(annotations map[string]string, set string) string {
	all, err := decode[map[string]string](annotations, v1alpha1.ResizeAnnotation)
	if err != nil {
		return ""
	}
	return all[set]
}
