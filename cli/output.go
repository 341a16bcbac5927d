package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/cli/view"
)

// Formats of the flag --output.
const (
	formatText = ""
	formatWide = "wide"
	formatJSON = "json"
	formatYAML = "yaml"
)

// output is the flag --output.
type output struct{ format string }

func (o *output) add(cmd *cobra.Command, formats ...string) {
	cmd.Flags().StringVarP(&o.format, "output", "o", formatText, strings.Join(formats, ", ")+"; empty: text")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if o.format != formatText && !slices.Contains(formats, o.format) {
			return fmt.Errorf("--output %q: use %s", o.format, strings.Join(formats, ", "))
		}
		if check == nil {
			return nil
		}
		return check(cmd, args)
	}
}

// text is what a model can write for people.
type text interface {
	Write(out io.Writer, t view.Text) error
}

// print writes a model in the format asked for.
func (s *shared) print(o output, model text) error {
	switch o.format {
	case formatJSON:
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "    ")
		return encoder.Encode(model)
	case formatYAML:
		data, err := yaml.Marshal(model)
		if err != nil {
			return err
		}
		_, err = s.Out.Write(data)
		return err
	}
	return model.Write(s.coloured(), s.text(o))
}

func (s *shared) text(o output) view.Text {
	return view.Text{Now: s.now(), Paint: paint, Wide: o.format == formatWide}
}

// coloured takes colours out again where nobody sees them: without a terminal, and with
// NO_COLOR.
func (s *shared) coloured() io.Writer { return colorprofile.NewWriter(s.Out, os.Environ()) }

// paint uses the sixteen colours, which people choose for their terminal.
func paint(tone view.Tone, word string) string {
	style := lipgloss.NewStyle()
	switch tone {
	case view.Good:
		style = style.Foreground(lipgloss.Green)
	case view.Busy:
		style = style.Foreground(lipgloss.Yellow)
	case view.Bad:
		style = style.Foreground(lipgloss.Red)
	case view.Faint:
		style = style.Faint(true)
	case view.Strong:
		style = style.Bold(true)
	}
	return style.Render(word)
}

// terminal reports whether people watch the output as it is written.
func (s *shared) terminal() bool {
	file, ok := s.Out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}
