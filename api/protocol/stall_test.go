package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSpec11_6_OnlyAPodThatWasNeverReadyRestartsTheProgressDeadline(t *testing.T) {
	begin := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		// Each plan has a pair of counts: the updated pods, and the updated pods that are ready. The time
		// between two plans is one minute.
		counts [][2]int
		since  int
	}{
		"nothing changes":                          {[][2]int{{3, 2}, {3, 2}}, 0},
		"a pod becomes ready":                      {[][2]int{{3, 2}, {3, 3}}, 1},
		"a pod flaps":                              {[][2]int{{3, 2}, {3, 1}, {3, 2}, {3, 1}, {3, 2}}, 0},
		"ready pods are deleted":                   {[][2]int{{9, 8}, {5, 4}, {5, 4}}, 0},
		"a pod becomes ready after a scale-down":   {[][2]int{{9, 8}, {5, 4}, {6, 5}}, 2},
		"a pod flaps, and another becomes ready":   {[][2]int{{3, 2}, {4, 1}, {4, 3}}, 2},
		"an upgraded pod is not ready yet":         {[][2]int{{3, 2}, {4, 2}}, 0},
		"all pods are deleted, and one is created": {[][2]int{{3, 2}, {0, 0}, {1, 1}}, 2},
	} {
		var stall *Stall
		for i, counts := range c.counts {
			stall = FollowStall(stall, true, Counts{Updated: counts[0], UpdatedReady: counts[1]}, begin.Add(time.Duration(i)*time.Minute))
		}
		assert.Equal(t, time.Duration(c.since)*time.Minute, stall.Since.Sub(begin), name)
	}
	assert.Nil(t, FollowStall(&Stall{Since: begin}, false, Counts{}, begin))
}

func TestSpec11_6_ANegativeProgressDeadlineIsNone(t *testing.T) {
	s := &Stage{Step: &Step{ProgressDeadline: -time.Minute}}
	assert.Zero(t, s.ProgressDeadline())
	s.Step.ProgressDeadline = time.Minute
	assert.Equal(t, time.Minute, s.ProgressDeadline())
}
