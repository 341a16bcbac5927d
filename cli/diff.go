package cli

import (
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func newDiff(s *shared) *cobra.Command {
	var o output.Flag
	cmd := &cobra.Command{
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
			d, err := v.diff(args[1:])
			if err != nil {
				return err
			}
			return s.print(o, d)
		},
	}
	o.Add(cmd, output.JSON, output.YAML)
	return cmd
}

// contentDiff is what two contents of a set are.
type contentDiff struct {
	From side `json:"from"`
	To   side `json:"to"`
}

// side is a recorded content, or that of the set as it is, which has no name and number.
type side struct {
	Name   string         `json:"name,omitempty"`
	Number int64          `json:"number,omitempty"`
	Spec   map[string]any `json:"spec"`
	label  string
}

// Write shows the lines that differ.
func (d contentDiff) Write(out io.Writer, _ view.Text) error {
	before, err := d.From.yaml()
	if err != nil {
		return err
	}
	after, err := d.To.yaml()
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, colouredDiff(udiff.Unified(d.From.label, d.To.label, before, after)))
	return err
}

func (s side) yaml() (string, error) {
	text, err := yaml.Marshal(map[string]any{"spec": s.Spec})
	if err != nil {
		return "", fmt.Errorf("write revision %s: %w", s.label, err)
	}
	return string(text), nil
}

func (v versions) diff(references []string) (contentDiff, error) {
	from, err := v.side(references[0])
	if err != nil {
		return contentDiff{}, err
	}
	var to side
	if len(references) > 1 {
		to, err = v.side(references[1])
	} else {
		to, err = v.now()
	}
	return contentDiff{From: from, To: to}, err
}

func (v versions) side(reference string) (side, error) {
	found, err := v.find(reference)
	if err != nil {
		return side{}, err
	}
	spec, err := readable(found.Data.Raw)
	if err != nil {
		return side{}, fmt.Errorf("revision %s: %w", found.Name, err)
	}
	return side{Name: found.Name, Number: found.Revision, Spec: spec, label: labelOf(found)}, nil
}

func (v versions) now() (side, error) {
	data, err := v.current()
	if err != nil {
		return side{}, err
	}
	spec, err := readable(data)
	return side{Spec: spec, label: v.set.Name + " (now)"}, err
}

// readable is recorded content without what is not set.
func readable(data []byte) (map[string]any, error) {
	fields, err := recorded(data)
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	return fields, err
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
