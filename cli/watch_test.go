package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func TestAWatchFailsEarlyIfAsked(t *testing.T) {
	rollout := &view.Rollout{Name: "logs", Observed: true, Phase: protocol.PhaseWaiting, Conditions: []view.Condition{
		{Type: v1alpha1.ConditionProgressing, Status: "True", Reason: v1alpha1.ReasonWaitingForPods},
		{Type: v1alpha1.ConditionDegraded, Status: "True", Reason: "ImagePullBackOff", Message: "1 of 6 pods"},
	}}
	early := rolloutEnd{failOnDegraded: true}
	ended, err := early.reached(rollout)
	assert.True(t, ended)
	require.EqualError(t, err, "SidecarSet logs is degraded: ImagePullBackOff: 1 of 6 pods")
	assert.Equal(t, 2, ExitCode(err))
	assert.Equal(t, 1, ExitCode(errors.New("any other")))

	patient := rolloutEnd{}
	ended, err = patient.reached(rollout)
	assert.False(t, ended)
	require.NoError(t, err)

	rollout.Observed = false
	ended, _ = early.reached(rollout)
	assert.False(t, ended, "the condition is of the generation before")
}

func TestSpec8_10_AWatchNamesAFaultOnce(t *testing.T) {
	var out, errOut bytes.Buffer
	s := &shared{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}}
	silent := func(seconds string) view.Fault {
		return view.Fault{Reason: view.OperatorNotResponding, Message: "silent for " + seconds}
	}
	err := s.lines(t.Context(), "logs", output.Flag{}, func(_ context.Context, show func(*view.Rollout) error) error {
		for _, fault := range []view.Fault{{}, silent("2s"), silent("5s"), {}, silent("3s")} {
			require.NoError(t, show(&view.Rollout{Name: "logs", Observed: true, Headline: "Progressing", Message: "1 of 3", Fault: fault}))
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, "Operator: silent for 2s\nOperator: silent for 3s\n", errOut.String())
	assert.Equal(t, "sidecarset/logs: Progressing, 1 of 3\nsidecarset/logs: rollout ended\n", out.String())
}

func TestAWatchEndsWithTheRun(t *testing.T) {
	rollout := &view.Rollout{Name: "logs", Observed: true, Phase: protocol.PhaseComplete, Run: &view.Run{}}
	end := rolloutEnd{}
	ended, err := end.reached(rollout)
	require.NoError(t, err)
	assert.False(t, ended, "the run ends within seconds")
	rollout.Pause = &protocol.Pause{}
	ended, _ = end.reached(rollout)
	assert.True(t, ended, "a paused run does not end")
	rollout.Pause, rollout.Run = nil, nil
	ended, _ = end.reached(rollout)
	assert.True(t, ended)
}

// A credential plugin renews the credentials every hour, after a 401 response to each of three watches.
func TestAWatchEndsOnceItsCredentialsAreLost(t *testing.T) {
	var renewed, lost refusals
	at := time.Unix(1000, 0)
	for range 10 {
		for range 3 {
			assert.False(t, renewed.last(at))
		}
		at = at.Add(time.Hour)
	}
	for range maxUnauthorized {
		assert.False(t, lost.last(at))
		at = at.Add(30 * time.Second)
	}
	assert.True(t, lost.last(at))
}
