package cli

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func newDiff(s *shared) *cobra.Command {
	return s.prints(s.ofSet(&cobra.Command{
		Use:   "diff NAME REVISION [REVISION]",
		Short: "Show the changes between two revisions, or between a revision and the current content",
		Long: "Show the changes between two revisions, or between a revision and the current content. A revision is named by number,\n" +
			"name or custom version.",
		Example: `  kubectl sidecarset diff logs 2          # the changes since revision 2
  kubectl sidecarset diff logs 2 v1.4.0   # a number and a custom version`,
		Args: takes(3, aSidecarSet, "a revision"),
	}), &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		v, err := c.versions(ctx, args[0])
		if err != nil {
			return nil, err
		}
		from, err := v.find(args[1])
		if err != nil {
			return nil, err
		}
		to, err := v.current()
		if len(args) > 2 {
			to, err = v.find(args[2])
		}
		if err != nil {
			return nil, err
		}
		return v.diff(from, to)
	}, output.JSON, output.YAML)
}

// contentDiff contains the two contents that are compared.
type contentDiff struct {
	From side `json:"from"`
	To   side `json:"to"`
}

// side is the content of a revision, or the current content. The current content has no name and no number.
type side struct {
	Name   string         `json:"name,omitempty"`
	Number int64          `json:"number,omitempty"`
	Spec   map[string]any `json:"spec"`
	label  string
}

// Text returns the unified diff.
func (d contentDiff) Text(s view.Style) string {
	if d.From.yaml() == d.To.yaml() {
		return fmt.Sprintf("%s and %s have the same content\n", d.From.label, d.To.label)
	}
	diff := udiff.Unified(d.From.label, d.To.label, d.From.yaml(), d.To.yaml())
	lines := strings.SplitAfter(diff, "\n")
	for i, line := range lines {
		bare := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "+"):
			lines[i] = s.Paint(view.Good, bare) + line[len(bare):]
		case strings.HasPrefix(line, "-"):
			lines[i] = s.Paint(view.Bad, bare) + line[len(bare):]
		}
	}
	return strings.Join(lines, "")
}

func (s side) yaml() string {
	text, err := yaml.Marshal(map[string]any{"spec": s.Spec})
	if err != nil {
		return err.Error() // Decoded content can always be encoded.
	}
	return string(text)
}

func (v versions) diff(from, to *appsv1.ControllerRevision) (model, error) {
	var sides [2]side
	for i, r := range []*appsv1.ControllerRevision{from, to} {
		fields, err := contentOf(r)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
		sides[i] = side{Name: r.Name, Number: r.Revision, Spec: fields, label: labelOf(r)}
		if r.Name == "" {
			sides[i].label = v.set.Name + " (now)"
		}
	}
	return contentDiff{From: sides[0], To: sides[1]}, nil
}
