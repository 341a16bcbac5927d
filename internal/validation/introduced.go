package validation

import (
	"encoding/json"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Introduced returns the causes that an update introduces. found is about the new SidecarSet, and before is
// about the stored SidecarSet. A cause that existed before, at the same path and about the same value, is not
// introduced.
func (r *Ratchet) Introduced(found, before []metav1.StatusCause) []metav1.StatusCause {
	if r.old == nil || len(before) == 0 {
		return found
	}
	set, old := document(r.set), document(r.old)
	stays := map[string]int{}
	for _, cause := range before {
		stays[identity(cause, old)]++
	}
	var introduced []metav1.StatusCause
	for _, cause := range found {
		known := identity(cause, set)
		if stays[known] > 0 {
			stays[known]--
			continue
		}
		introduced = append(introduced, cause)
	}
	return introduced
}

func document(set *v1alpha1.SidecarSet) any {
	encoded, err := json.Marshal(set)
	if err != nil {
		return nil
	}
	var decoded any
	if json.Unmarshal(encoded, &decoded) != nil {
		return nil
	}
	return decoded
}

// identity returns a key that is equal for the same cause in two versions of a SidecarSet.
func identity(cause metav1.StatusCause, in any) string {
	path, value := locate(cause.Field, in)
	if cause.Field == "spec" {
		// The cause does not belong to a single field of the spec. The whole spec is not compared, because other
		// fields may change.
		value = nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return strings.Join([]string{string(cause.Type), path, cause.Message, string(encoded)}, "\n")
}

// locate follows a field path, such as spec.list[0].map[a.b/c]. The returned path contains names
// instead of indexes, because indexes change when elements are added or removed.
func locate(field string, in any) (path string, value any) {
	value = in
	var steps []string
	for field != "" {
		var step string
		step, field = next(field, value)
		switch within := value.(type) {
		case map[string]any:
			value = within[step]
		case []any:
			value = nil
			if index, err := strconv.Atoi(step); err == nil && index >= 0 && index < len(within) {
				value = within[index]
			}
			step = nameOf(value)
		default:
			value = nil
		}
		steps = append(steps, step)
	}
	return strings.Join(steps, "\n"), value
}

// next returns the first step of a path. A key may contain brackets, so the keys of the value
// determine where the step ends.
func next(field string, in any) (step, rest string) {
	if field[0] != '[' {
		field = strings.TrimPrefix(field, ".")
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			end = len(field)
		}
		return field[:end], field[end:]
	}
	step, rest, _ = strings.Cut(field[1:], "]")
	object, _ := in.(map[string]any)
	for key := range object {
		if after, is := strings.CutPrefix(field, "["+key+"]"); is && len(key) > len(step) {
			step, rest = key, after
		}
	}
	return step, rest
}

func nameOf(element any) string {
	object, _ := element.(map[string]any)
	name, _ := object["name"].(string)
	return name
}
