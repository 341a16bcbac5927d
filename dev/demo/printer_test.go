package demo

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDetailsArePrintedInVerboseMode(t *testing.T) {
	for verbose, want := range map[bool]string{
		false: `^ +\d+\.\d s  2 pods\n$`,
		true:  `^ +\d+\.\d s  2 pods\n {10}\$ kubectl\n {10}answer\n$`,
	} {
		var out bytes.Buffer
		printer := NewPrinter(&out, verbose)
		printer.Step("%d pods", 2)
		printer.Detail("$ %s\nanswer", "kubectl")
		assert.Regexp(t, want, out.String())
	}
}

func TestAStepOfMakeIsALineUnlessItFails(t *testing.T) {
	step := func(verbose string, command ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "../step.sh", append([]string{"it is done"}, command...)...)
		cmd.Env = append(os.Environ(), "V="+verbose)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := step("", "echo", "noise")
	require.NoError(t, err)
	assert.Regexp(t, `^ +\d+\.\d s  it is done\n$`, out)
	out, err = step("1", "echo", "noise")
	require.NoError(t, err)
	assert.Regexp(t, `^noise\n +\d+\.\d s  it is done\n$`, out)
	out, err = step("", "sh", "-c", "echo why >&2; exit 3")
	require.Error(t, err)
	assert.Equal(t, "it is done: failed\nwhy\n", out)
	_, err = step("1", "false")
	require.Error(t, err)
}
