package cli

import (
	"fmt"
	"os"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"golang.org/x/term"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

// model is the data that a command prints.
type model interface {
	Text(s view.Style) string
}

// print writes a model in the format of the flag. If the output is not a terminal, or NO_COLOR is set, print
// removes the colours.
func (s *shared) print(o output.Flag, m model) error {
	if o.Structured() {
		return o.Write(s.Out, m)
	}
	_, err := fmt.Fprint(colorprofile.NewWriter(s.Out, os.Environ()), Printable(s.textOf(m, s.style(o))))
	return err
}

func (s *shared) style(o output.Flag) view.Style {
	return view.Style{Now: s.now(), Paint: paint, Wide: o.Format == output.Wide}
}

// paint uses only the sixteen colours that a user can choose in a terminal.
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

// terminal reports whether the output is a terminal that supports redrawing.
func (s *shared) terminal() bool {
	file, ok := s.Out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}
