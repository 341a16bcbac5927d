package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
