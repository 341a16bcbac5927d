package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// versions contains a SidecarSet and its revisions, the oldest first.
type versions struct {
	set    *v1alpha1.SidecarSet
	sorted []*appsv1.ControllerRevision
	// namespace is the namespace of the revisions.
	namespace string
}

func (c *cluster) versions(ctx context.Context, name string) (versions, error) {
	set, err := c.set(ctx, name)
	if err != nil {
		return versions{}, err
	}
	sorted, err := c.revisions(ctx, set)
	return versions{set, sorted, c.systemNamespace}, err
}

// recorded returns an error if there are no revisions. The operator records at least one revision of each
// SidecarSet.
func (v versions) recorded() error {
	if len(v.sorted) > 0 {
		return nil
	}
	return fmt.Errorf("namespace %s has no revision of SidecarSet %s (name the namespace of the operator with --system-namespace; kubectl sidecarset check checks the operator)",
		v.namespace, v.set.Name)
}

// find returns the revision whose number, name or custom version is reference. find compares numbers first,
// then names, then custom versions, because a custom version may be equal to a number or a name. find compares
// former custom versions last. If several revisions match, find returns an error.
func (v versions) find(reference string) (*appsv1.ControllerRevision, error) {
	number, notANumber := strconv.ParseInt(reference, 10, 64)
	for _, kind := range []struct {
		is      string
		matches func(*appsv1.ControllerRevision) bool
	}{
		{"the number", func(one *appsv1.ControllerRevision) bool { return notANumber == nil && one.Revision == number }},
		{"the name", func(one *appsv1.ControllerRevision) bool { return one.Name == reference }},
		{"the custom version", func(one *appsv1.ControllerRevision) bool {
			return reference != "" && one.Labels[v1alpha1.CustomVersionLabel] == reference
		}},
		{"a former custom version", func(one *appsv1.ControllerRevision) bool { return revision.HasCustomVersion(one, reference) }},
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
	if err := v.recorded(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("SidecarSet %s has no revision %q; it has %s", v.set.Name, reference, labelsOf(v.sorted))
}

// current returns the current content, as a revision without name and number.
func (v versions) current() (*appsv1.ControllerRevision, error) {
	data, err := revision.Content(&v.set.Spec)
	return &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}}, err
}

// previous returns the newest revision whose content differs from the content of the SidecarSet.
func (v versions) previous() (*appsv1.ControllerRevision, error) {
	current, err := v.current()
	if err != nil {
		return nil, err
	}
	if found := revision.NewestOther(v.sorted, current.Data.Raw); found != nil {
		return found, nil
	}
	if err := v.recorded(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("SidecarSet %s has no earlier revision: nothing to undo", v.set.Name)
}

func labelOf(r *appsv1.ControllerRevision) string { return fmt.Sprintf("%s (%d)", r.Name, r.Revision) }

// labelsOf returns the names and numbers of revisions, the newest first.
func labelsOf(sorted []*appsv1.ControllerRevision) string {
	var labels []string
	for _, one := range slices.Backward(sorted) {
		labels = append(labels, labelOf(one))
	}
	return strings.Join(labels, ", ")
}

// contentOf returns the five fields of spec in a revision. Unset fields are nil. contentOf keeps fields of
// containers that are not in the Go types of this program.
func contentOf(r *appsv1.ControllerRevision) (map[string]any, error) {
	var content struct {
		Spec map[string]any `json:"spec"`
	}
	err := revision.Restore(r.Data.Raw, &v1alpha1.SidecarSetSpec{})
	if err == nil {
		err = json.Unmarshal(r.Data.Raw, &content)
	}
	if err != nil {
		return nil, fmt.Errorf("revision %s: %w", r.Name, err)
	}
	fields := map[string]any{}
	for _, key := range []string{"containers", "imagePullSecrets", "initContainers", "patchPodMetadata", "volumes"} {
		fields[key] = content.Spec[key]
	}
	return fields, nil
}
