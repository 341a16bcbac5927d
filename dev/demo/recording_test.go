package demo

import (
	"bytes"
	"encoding/xml"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestARecordingPlaysLinesInTheirOrder(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var out bytes.Buffer
	r := &Recording{Out: &out, Clock: clock}
	say := func(text string) {
		_, err := io.WriteString(r, text)
		require.NoError(t, err)
	}
	say("1. A <set>\n   $ kube")
	clock.Step(time.Second)
	say("ctl get\n\n")
	clock.Step(time.Hour)
	say("UI: http://127.0.0.1:15000 at the end\n")

	assert.Equal(t, "1. A <set>\n   $ kubectl get\n\nUI: http://127.0.0.1:15000 at the end\n", out.String(), "passed on as it was")
	picture := r.SVG()
	require.NoError(t, xml.Unmarshal([]byte(picture), new(any)))
	assert.Contains(t, picture, "1. A &lt;set&gt;")
	assert.Contains(t, picture, "$ kubectl get")
	assert.NotContains(t, picture, "127.0.0.1")
	// One second, a pause that is cut to one and a half, and the end.
	assert.Contains(t, picture, `dur="8.5s"`)
}
