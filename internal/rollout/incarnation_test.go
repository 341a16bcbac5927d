package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSetMadeAgainWaitsForTheRunOfTheOneBefore(t *testing.T) {
	set := strategy(nil)
	set.CreationTimestamp = metav1.NewTime(noon)
	for touched, want := range map[time.Duration]time.Duration{
		-time.Hour:        0,
		-letGo:            0,
		-14 * time.Second: letGo,
		0:                 letGo,
		time.Second:       letGo,
		2 * time.Second:   0, // by a run of this one
	} {
		state := old
		state.Touched, state.TouchedAt = true, noon.Add(touched)
		assert.Equal(t, noon.Add(want), Quiet(set, []Pod{newPod("a", old), newPod("b", state)}, false), touched)
	}
}

func TestNewSetDoesNotWaitForItsOwnRun(t *testing.T) {
	set := strategy(nil)
	set.CreationTimestamp = metav1.NewTime(noon)
	state := restart
	state.TouchedAt = noon.Add(time.Second) // its first batch, right after its creation
	assert.Equal(t, noon, Quiet(set, []Pod{newPod("a", old), newPod("b", state)}, true))
}
