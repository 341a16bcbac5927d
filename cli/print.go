package cli

import (
	"io"
	"os"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"golang.org/x/term"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

// text is what a model can write for people.
type text interface {
	Write(out io.Writer, t view.Text) error
}

// print writes a model in the format asked for.
func (s *shared) print(o output.Flag, model text) error {
	if o.Structured() {
		return o.Write(s.Out, model)
	}
	return model.Write(s.coloured(), s.text(o))
}

func (s *shared) text(o output.Flag) view.Text {
	return view.Text{Now: s.now(), Paint: paint, Wide: o.Format == output.Wide}
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
