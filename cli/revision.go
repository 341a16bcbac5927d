package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
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

func newDiff(s *shared) *cobra.Command {
	return &cobra.Command{
		Use:   "diff NAME REVISION [REVISION]",
		Short: "Show what changed between two revisions, or between one and now",
		Long:  "Show what changed between two revisions, or between one and now. A revision is named by number, name or custom version.",
		Args:  cobra.RangeArgs(2, 3), ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			v, err := c.versions(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			text, err := v.diff(args[1:])
			if err != nil {
				return err
			}
			_, err = io.WriteString(s.coloured(), text)
			return err
		},
	}
}

func (v versions) diff(references []string) (string, error) {
	from, err := v.find(references[0])
	if err != nil {
		return "", err
	}
	data, label, err := v.second(references[1:])
	if err != nil {
		return "", err
	}
	before, err := readable(from.Data.Raw)
	if err != nil {
		return "", fmt.Errorf("revision %s: %w", from.Name, err)
	}
	after, err := readable(data)
	if err != nil {
		return "", fmt.Errorf("revision %s: %w", label, err)
	}
	return colouredDiff(udiff.Unified(labelOf(from), label, before, after)), nil
}

// second is what a revision is compared with: another one, or the set as it is.
func (v versions) second(references []string) (data []byte, label string, err error) {
	if len(references) == 0 {
		data, err = v.current()
		return data, v.set.Name + " (now)", err
	}
	to, err := v.find(references[0])
	if err != nil {
		return nil, "", err
	}
	return to.Data.Raw, labelOf(to), nil
}

func labelOf(r *appsv1.ControllerRevision) string { return fmt.Sprintf("%s (%d)", r.Name, r.Revision) }

// readable is recorded content as YAML, without what is not set.
func readable(data []byte) (string, error) {
	fields, err := recorded(data)
	if err != nil {
		return "", err
	}
	for key, value := range fields {
		if value == nil {
			delete(fields, key)
		}
	}
	text, err := yaml.Marshal(map[string]any{"spec": fields})
	return string(text), err
}

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

func colouredDiff(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		bare := strings.TrimSuffix(line, "\n")
		tone := view.Plain
		switch {
		case strings.HasPrefix(line, "+"):
			tone = view.Good
		case strings.HasPrefix(line, "-"):
			tone = view.Bad
		}
		if tone != view.Plain {
			lines[i] = paint(tone, bare) + line[len(bare):]
		}
	}
	return strings.Join(lines, "")
}
