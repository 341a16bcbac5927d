package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A user of a namespace wrote the annotations of a pod.
func TestControlCharactersDoNotReachTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext é\n":                     "plain\ttext é\n",
		"\x1b[1;32mgood\x1b[0m\n":             "\x1b[1;32mgood\x1b[0m\n",
		"\x1b]0;title\a \x1b[2J\r\x1b[31mred": "\ufffd]0;title\ufffd \ufffd[2J\ufffd\x1b[31mred",
		"\u009b2J":                            "\ufffd2J",
	} {
		assert.Equal(t, want, Printable(text), "%q", text)
	}
}
