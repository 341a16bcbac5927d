package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

func TestARolloutShowsItsGates(t *testing.T) {
	in := staged(t, 0, 11*time.Minute)
	s := stage.OfStatus(in.Set)
	s.Step.Gates = []outriggerv1.RolloutGate{{Name: "errors"}, {Name: "checks"}}
	s.Gates = []protocol.GateState{{Name: "errors", Phase: protocol.GateRunning, Message: "1 of 2 samples, last value 0.1"}}
	stage.ToStatus(in.Set, s)
	r := newRollout(t, in)
	assert.Equal(t, "GateRunning (step 1 of 4)", r.Headline)
	assert.Equal(t, "GateRunning (step 1 of 4)", listed(in, v1alpha1.ReasonGateRunning).Headline)
	lines := r.stepLines(Style{Now: noon})
	assert.Contains(t, lines[1], "● step 1 (canary): waits for its gates")
	assert.Equal(t, []string{"  gate errors: running, 1 of 2 samples, last value 0.1", "  gate checks: pending"}, lines[2:4])
	assert.Contains(t, r.Text(Style{Now: noon}), "skip the gates: kubectl sidecarset promote logs")
	assert.Contains(t, newWhy(t, in).Text(Style{Now: noon}), "waits for gate errors: 1 of 2 samples, last value 0.1 (skip its gates: kubectl sidecarset promote logs)")

	in.Set.Status.Rollout.Stage.Gates[0].Phase = string(protocol.GateInconclusive)
	in.Set.Status.Rollout.Pause = &v1alpha1.RolloutPause{By: "RolloutPolicy edge", Reason: "gate errors is inconclusive"}
	assert.Equal(t, "Paused", newRollout(t, in).Headline)
	assert.Equal(t, "Paused", listed(in, v1alpha1.ReasonGateInconclusive).Headline)
}
