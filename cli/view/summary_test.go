package view

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/protocol"
)

// If summaries with different ages were not equal, list --watch would print a line each second.
func TestSummariesWithAnotherAgeAreEqual(t *testing.T) {
	paused := Summary{Name: "logs", Headline: "Paused", pausedBy: ", whose last write was 7s ago", lost: "node a is NotReady for 3m7s"}
	later := paused
	later.pausedBy, later.lost = ", whose last write was 8s ago", "node a is NotReady for 3m8s"
	assert.True(t, later.Equal(paused))
	later.lost = ""
	assert.False(t, later.Equal(paused), "the node responds again")
	later = paused
	later.Headline = "Progressing"
	assert.False(t, later.Equal(paused))
}

func TestAReasonWithLineBreaksStaysInOneLine(t *testing.T) {
	in := input(t)
	in.Run.Status = &protocol.RolloutStatus{Generation: 2, Pause: &protocol.Pause{By: "ann\nbob", Reason: "errors\nin the\tlogs"}}
	r := newRollout(t, in)
	const want = "by ann bob: errors in the logs"
	assert.Contains(t, r.Line(), "; paused "+want)
	assert.Contains(t, r.Text(Style{}), "Paused:    "+want+"\n")
	assert.Equal(t, want+" (kubectl sidecarset resume logs)", PausedBySignal("logs", in.Run.Status.Pause))
	r.Message = "frozen by RolloutFreeze stop: a\nb"
	assert.NotContains(t, r.Line(), "\n")
}
