package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"github.com/outrigger/outrigger/output"
)

// live calls follow, and redraws each shown model in place, until follow returns or the user quits.
func (s *shared) live(ctx context.Context, o output.Flag, follow func(ctx context.Context, show func(model) error) error, extra ...tea.ProgramOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(s.Out), tea.WithoutSignalHandler(), tea.WithInput(nil)}
	if in, ok := s.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		options = append(options, tea.WithInput(in))
	}
	program := tea.NewProgram(screen{text: func(m model) string { return s.textOf(m, s.style(o)) }}, append(options, extra...)...)
	ended := make(chan error, 1)
	go func() {
		ended <- follow(ctx, func(m model) error {
			program.Send(m)
			return nil
		})
		program.Send(tea.Quit())
	}()
	last, err := program.Run()
	if shown, ok := last.(screen); ok && shown.left {
		return errInterrupted
	}
	cancel()
	// If follow fails, the error of the program is only a consequence of this failure.
	if cause := <-ended; cause != nil {
		return cause
	}
	return err
}

// screen is the model of bubbletea.
type screen struct {
	shown  model
	text   func(model) string
	height int
	// left is set if the user pressed q or Ctrl-C.
	left bool
}

// Init implements tea.Model. The screen is redrawn every second, because the text contains ages.
func (s screen) Init() tea.Cmd { return tea.Every(time.Second, func(t time.Time) tea.Msg { return t }) }

// Update implements tea.Model.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case model:
		s.shown = message
	case tea.WindowSizeMsg:
		s.height = message.Height
	case time.Time:
		return s, s.Init()
	case tea.KeyPressMsg:
		if key := message.String(); key == "q" || key == "ctrl+c" {
			s.left = true
			return s, tea.Quit
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s screen) View() tea.View {
	if s.shown == nil {
		return tea.NewView("reading …\n")
	}
	return tea.NewView(fitted(Printable(s.text(s.shown)), s.height))
}

// fitted omits the lines of text that do not fit in a window of height lines, because a terminal cannot
// redraw lines that have scrolled out of the window.
func fitted(text string, height int) string {
	lines := strings.Split(text, "\n")
	if height < 2 || len(lines) <= height {
		return text
	}
	hidden := len(lines) - height + 1
	return strings.Join(append(lines[:height-1], fmt.Sprintf("… %d more lines", hidden)), "\n")
}
