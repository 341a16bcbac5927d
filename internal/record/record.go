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

// Entry says which version of a set a pod holds.
type Entry struct {
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	Hash            string      `json:"hash"`
	SidecarSetName  string      `json:"sidecarSetName"`
	// SidecarList holds the sorted names of containers and native sidecars.
	SidecarList []string `json:"sidecarList"`
	// ControllerRevision is absent from the entry without images.
	ControllerRevision string `json:"controllerRevision,omitempty"`
}

// Entries maps a set's name to what the pod holds of it.
type Entries map[string]Entry

// State says what an in-place upgrade changed.
type State struct {
	Revision        string      `json:"revision"`
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	// LastContainerStatuses holds the changed containers as they were before.
	LastContainerStatuses map[string]ContainerStatus `json:"lastContainerStatuses"`
}

// ContainerStatus is what a container ran.
type ContainerStatus struct {
	ImageID string `json:"imageID"`
	// RestartCount shows a restart even where the new image has the same ID.
	// States that OpenKruise wrote lack it.
	RestartCount *int32 `json:"restartCount,omitempty"`
}

// States maps a set's name to its newest in-place upgrade of the pod.
type States map[string]State

// Hashes reads the entries of HashAnnotation. A missing annotation is empty.
func Hashes(annotations map[string]string) (Entries, error) {
	return entries(annotations, v1alpha1.HashAnnotation)
}

// HashesWithoutImage reads the entries of HashWithoutImageAnnotation.
func HashesWithoutImage(annotations map[string]string) (Entries, error) {
	return entries(annotations, v1alpha1.HashWithoutImageAnnotation)
}

func entries(annotations map[string]string, key string) (Entries, error) {
	return decode[Entries](annotations, key)
}

// UnmarshalJSON also reads the older form of an entry, the bare hash. A pod may
// hold entries of both forms.
func (e *Entry) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*e = Entry{}
		return json.Unmarshal(data, &e.Hash)
	}
	type plain Entry
	return json.Unmarshal(data, (*plain)(e))
}

// InPlaceStates reads InPlaceUpdateStateAnnotation.
func InPlaceStates(annotations map[string]string) (States, error) {
	return decode[States](annotations, v1alpha1.InPlaceUpdateStateAnnotation)
}

// ActiveContainers reads which twin of each hot sidecar is active.
func ActiveContainers(annotations map[string]string) (map[string]string, error) {
	return decode[map[string]string](annotations, v1alpha1.WorkingHotUpgradeContainerAnnotation)
}

// UnavailableSince reads since when a pod had not been ready when a set
// upgraded it, as its Ready condition said (SPEC §7.5). What cannot be read is
// taken for absent: the pod counts as unavailable because of the upgrade.
func UnavailableSince(annotations map[string]string, set string) (since metav1.Time, recorded bool) {
	all, err := decode[map[string]metav1.Time](annotations, v1alpha1.UnavailableSinceAnnotation)
	if err != nil {
		return metav1.Time{}, false
	}
	since, recorded = all[set]
	return since, recorded
}

// WithUnavailableSince returns the value of that annotation with the entry of a
// set replaced, or removed when since is nil. changed is false when it stays as
// it is written.
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

// InjectedSets reads the names of the sets injected into a pod.
func InjectedSets(annotations map[string]string) []string {
	value := annotations[v1alpha1.InjectedListAnnotation]
	if value == "" {
		return nil
	}
	return strings.Split(value, ",")
}

// Injected reports whether the pod's list names a set.
func Injected(annotations map[string]string, set string) bool {
	for name := range strings.SplitSeq(annotations[v1alpha1.InjectedListAnnotation], ",") {
		if name == set {
			return true
		}
	}
	return false
}

// FormatInjectedSets writes names sorted, each once.
func FormatInjectedSets(names []string) string {
	sorted := slices.Sorted(maps.Keys(setOf(names)))
	return strings.Join(sorted, ",")
}

func setOf(names []string) map[string]struct{} {
	set := make(map[string]struct{}, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return set
}

// Format writes an annotation's value. Keys come out sorted.
func Format[V any](value map[string]V) (string, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode annotation: %w", err)
	}
	return string(encoded), nil
}

// With returns the value of an annotation of entries with those of some sets
// replaced. Entries of other sets stay as they are written, byte for byte.
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
