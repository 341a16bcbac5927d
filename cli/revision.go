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

// find takes a number, a name or a custom version.
func (v versions) find(reference string) (*appsv1.ControllerRevision, error) {
	number, err := strconv.ParseInt(reference, 10, 64)
	var known []string
	for _, one := range slices.Backward(v.sorted) {
		if err == nil && one.Revision == number || one.Name == reference || revision.HasCustomVersion(one, reference) {
			return one, nil
		}
		known = append(known, fmt.Sprintf("%d (%s)", one.Revision, one.Name))
	}
	return nil, fmt.Errorf("SidecarSet %s has no revision %q; it has %s", v.set.Name, reference, strings.Join(known, ", "))
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

// recorded are the five keys of spec that a revision has, also such fields of containers
// that this program does not know.
func recorded(data []byte) (map[string]any, error) {
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
