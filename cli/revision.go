package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// versions are a set with its revisions, the oldest first.
type versions struct {
	set    *v1alpha1.SidecarSet
	sorted []*appsv1.ControllerRevision
}

func (c *cluster) versions(ctx context.Context, name string) (versions, error) {
	set, err := c.set(ctx, name)
	if err != nil {
		return versions{}, err
	}
	sorted, err := c.revisions(ctx, set)
	return versions{set, sorted}, err
}

// find takes a number, a name or a custom version, in this order: a custom version may
// look like either. A reference to several revisions is an error.
func (v versions) find(reference string) (*appsv1.ControllerRevision, error) {
	number, notANumber := strconv.ParseInt(reference, 10, 64)
	for _, kind := range []struct {
		is      string
		matches func(*appsv1.ControllerRevision) bool
	}{
		{"the number", func(one *appsv1.ControllerRevision) bool { return notANumber == nil && one.Revision == number }},
		{"the name", func(one *appsv1.ControllerRevision) bool { return one.Name == reference }},
		{"a custom version", func(one *appsv1.ControllerRevision) bool { return revision.HasCustomVersion(one, reference) }},
	} {
		found := slices.DeleteFunc(slices.Clone(v.sorted), func(one *appsv1.ControllerRevision) bool { return !kind.matches(one) })
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return nil, fmt.Errorf("%q is %s of several revisions of SidecarSet %s: %s; use the name of one", reference, kind.is, v.set.Name, labelsOf(found))
		}
	}
	if len(v.sorted) == 0 {
		return nil, fmt.Errorf("SidecarSet %s has no revision %q; none is recorded", v.set.Name, reference)
	}
	return nil, fmt.Errorf("SidecarSet %s has no revision %q; it has %s", v.set.Name, reference, labelsOf(v.sorted))
}

// current is the content that the set has now, as a revision records it.
func (v versions) current() ([]byte, error) { return revision.Content(&v.set.Spec) }

// previous is the newest revision with another content than the set's.
func (v versions) previous() (*appsv1.ControllerRevision, error) {
	current, err := v.current()
	if err != nil {
		return nil, err
	}
	for _, one := range slices.Backward(v.sorted) {
		if !revision.Equal(one.Data.Raw, current) {
			return one, nil
		}
	}
	return nil, fmt.Errorf("SidecarSet %s has no earlier revision", v.set.Name)
}

func labelOf(r *appsv1.ControllerRevision) string { return fmt.Sprintf("%s (%d)", r.Name, r.Revision) }

// labelsOf names the newest first.
func labelsOf(sorted []*appsv1.ControllerRevision) string {
	var labels []string
	for _, one := range slices.Backward(sorted) {
		labels = append(labels, labelOf(one))
	}
	return strings.Join(labels, ", ")
}

// customVersionOf is what the content of a revision is called: by what it was found, or
// the newest of its custom versions. It is empty if it has none.
func customVersionOf(found *appsv1.ControllerRevision, reference string) string {
	all := revision.CustomVersions(found)
	switch {
	case len(all) == 0:
		return ""
	case slices.Contains(all, reference):
		return reference
	}
	return all[len(all)-1]
}

// recorded are the five keys of spec that a revision has, also such fields of containers
// that this program does not know.
func recorded(data []byte) (map[string]any, error) {
	if err := revision.Restore(data, &v1alpha1.SidecarSetSpec{}); err != nil {
		return nil, err
	}
	var content struct {
		Spec map[string]any `json:"spec"`
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("read the recorded content: %w", err)
	}
	fields := map[string]any{}
	for _, key := range []string{"containers", "imagePullSecrets", "initContainers", "patchPodMetadata", "volumes"} {
		fields[key] = content.Spec[key]
	}
	return fields, nil
}
