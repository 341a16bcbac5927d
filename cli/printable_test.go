package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Any user of a namespace can write annotations that a command prints to the terminal of another user.
func TestControlCharactersDoNotReachTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext é\n":                     "plain\ttext é\n",
		"\x1b[1;32mgood\x1b[0m\n":             "\x1b[1;32mgood\x1b[0m\n",
		"\x1b]0;title\a \x1b[2J\r\x1b[31mred": "\ufffd]0;title\ufffd \ufffd[2J\ufffd\x1b[31mred",
		"\u009b2J":                            "\ufffd2J",
	} {
		assert.Equal(t, want, Printable(text), "%q", text)
		var out strings.Builder
		written, err := PrintableWriter(&out).Write([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, len(text), written)
		assert.Equal(t, want, out.String())
	}
}
