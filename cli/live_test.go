package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func TestTheLiveViewShowsTheNewestModelAndEndsWithTheRollout(t *testing.T) {
	var out bytes.Buffer
	s := &shared{IOStreams: genericiooptions.IOStreams{Out: &out}, now: time.Now}
	require.NoError(t, s.live(t.Context(), output.Flag{}, func(_ context.Context, show func(model) error) error {
		return errors.Join(show(&view.Rollout{Name: "first"}), show(&view.Rollout{Name: "second"}))
	}, tea.WithWindowSize(80, 24)))
	assert.Contains(t, out.String(), "sidecarset/second")
	cause := errors.New("the SidecarSet was deleted")
	require.ErrorIs(t, s.live(t.Context(), output.Flag{}, func(context.Context, func(model) error) error { return cause }), cause)
}

func TestAKeyEndsTheLiveView(t *testing.T) {
	left, _ := screen{}.Update(tea.KeyPressMsg{Code: 'q', Text: "q"})
	assert.True(t, left.(screen).left)
	stays, _ := screen{}.Update(tea.KeyPressMsg{Code: 'x', Text: "x"})
	assert.False(t, stays.(screen).left)
}

func TestTheLiveViewFitsItsWindow(t *testing.T) {
	text := strings.Repeat("line\n", 10)
	assert.Equal(t, text, fitted(text, 11))
	assert.Equal(t, text, fitted(text, 0), "the size is not known yet")
	assert.Equal(t, "line\nline\n… 9 more lines", fitted(text, 3))
}
