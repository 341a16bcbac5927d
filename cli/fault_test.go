package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

func TestSpec8_10_TheAnswerOfARunIsNewerThanTheLease(t *testing.T) {
	workers := view.Fault{Reason: v1alpha1.ReasonWorkerUnavailable, Message: "no worker polls"}
	temporal := view.Fault{Reason: v1alpha1.ReasonTemporalUnavailable, Message: "no answer"}
	answer, silence := view.RunInput{Status: &protocol.RolloutStatus{}}, view.RunInput{NotResponding: true}
	for name, c := range map[string]struct {
		fault view.Fault
		runs  []view.RunInput
		want  view.Fault
	}{
		"a run answers":                     {workers, []view.RunInput{silence, answer}, view.Fault{}},
		"a run answers, Temporal later not": {temporal, []view.RunInput{answer}, temporal},
		"no run answers":                    {workers, []view.RunInput{silence}, workers},
		"no run is open":                    {workers, []view.RunInput{{}}, workers},
		"one run of several is busy":        {view.Fault{}, []view.RunInput{answer, silence}, view.Fault{}},
		"no run was asked":                  {view.Fault{}, nil, view.Fault{}},
	} {
		assert.Equal(t, c.want, (*cluster)(nil).correct(t.Context(), c.fault, c.runs...), name)
	}
}
