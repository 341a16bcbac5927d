package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func TestSpec11_7_AFreezeRemovesTheUpgradesFromAPlan(t *testing.T) {
	due := fixed
	due.FalseConditionDue = true
	paused := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Paused = true })
	notUpdate := strategy(func(s *v1alpha1.SidecarSetUpdateStrategy) { s.Type = v1alpha1.NotUpdateSidecarSetStrategyType })
	two := unavailable(intstr.FromInt32(2))
	for _, c := range []struct {
		name  string
		set   *v1alpha1.SidecarSet
		stage *protocol.Stage
		pods  []podstate.State
		phase protocol.Phase
	}{
		{"pods to upgrade", two, nil, []podstate.State{old, oldDown, updated, due}, protocol.PhaseFrozen},
		{"all slots are in use", unavailable(intstr.FromInt32(1)), nil, []podstate.State{restart, old}, protocol.PhaseFrozen},
		{"pods that converge", two, nil, []podstate.State{restart, updated}, protocol.PhaseWaiting},
		{"nothing left", two, nil, []podstate.State{updated}, protocol.PhaseComplete},
		{"paused", paused, nil, []podstate.State{old}, protocol.PhasePaused},
		{"upgrades are off", notUpdate, nil, []podstate.State{old}, protocol.PhaseNotUpdate},
		{"a reached step", two, step(intstr.FromInt32(1)), []podstate.State{updated, old}, protocol.PhaseStepReached},
		{"a step in progress", two, step(intstr.FromInt32(2)), []podstate.State{updated, old, old}, protocol.PhaseFrozen},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := NextInStage(c.set, matched(c.pods...), nil, c.stage)
			require.NoError(t, err)
			before := plan
			plan.Freeze("frozen by RolloutFreeze friday")
			assert.Equal(t, c.phase, plan.Phase)
			if plan.Phase != protocol.PhaseFrozen {
				assert.Equal(t, before, plan)
				return
			}
			assert.Empty(t, plan.Pods)
			assert.Empty(t, plan.Queued)
			assert.Empty(t, plan.FalseConditions)
			assert.Equal(t, before.Counts, plan.Counts)
			assert.Contains(t, plan.Message, "frozen by RolloutFreeze friday; ")
			assert.False(t, plan.Phase.Ended())
		})
	}
}
