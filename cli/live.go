package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

// live redraws the model in place. extra options come last.
func (s *shared) live(ctx context.Context, o output.Flag, follow followFunc, extra ...tea.ProgramOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(s.Out), tea.WithoutSignalHandler(), tea.WithInput(nil)}
	if in, ok := s.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		options = append(options, tea.WithInput(in))
	}
	program := tea.NewProgram(screen{text: func() view.Text { return s.text(o) }}, append(options, extra...)...)
	ended := make(chan error, 1)
	go func() {
		err := follow(ctx, func(model *view.Rollout) error {
			program.Send(model)
			return nil
		})
		ended <- err
		program.Send(tea.Quit())
	}()
	last, err := program.Run()
	if shown, ok := last.(screen); ok && shown.left {
		return errInterrupted
	}
	cancel()
	// What ended the watch says more than what that did to the screen.
	if cause := <-ended; cause != nil {
		return cause
	}
	return err
}

// screen is the model that bubbletea shows.
type screen struct {
	rollout *view.Rollout
	text    func() view.Text
	height  int
	// left is set once somebody has pressed q or Ctrl-C.
	left bool
}

type second time.Time

func everySecond() tea.Cmd {
	return tea.Every(time.Second, func(t time.Time) tea.Msg { return second(t) })
}

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return everySecond() }

// Update implements tea.Model.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case *view.Rollout:
		s.rollout = message
	case tea.WindowSizeMsg:
		s.height = message.Height
	case second:
		return s, everySecond()
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
	if s.rollout == nil {
		return tea.NewView("reading …\n")
	}
	var out strings.Builder
	if err := s.rollout.Write(&out, s.text()); err != nil {
		return tea.NewView(err.Error())
	}
	return tea.NewView(fitted(out.String(), s.height))
}

// fitted cuts what a window does not hold: lines that have scrolled away cannot be redrawn.
func fitted(text string, height int) string {
	lines := strings.Split(text, "\n")
	if height < 2 || len(lines) <= height {
		return text
	}
	hidden := len(lines) - height + 1
	return strings.Join(append(lines[:height-1], fmt.Sprintf("… %d more lines", hidden)), "\n")
}
