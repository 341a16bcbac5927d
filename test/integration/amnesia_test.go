package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// Temporal loses the runs of a paused rollout, of a rolled back rollout, and of a rollout in a bake time.
func TestPausesQuarantinesAndStepsOutliveTemporalsDatabase(t *testing.T) {
	s := newScenario(t, 8, nil).slow("4s")
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	pause := protocol.Pause{By: "ann", Reason: "errors in the logs"}
	paused := s.pause(pause)
	s.stillPaused(pause, paused)

	const n = 6
	all := intstr.FromString("100%")
	rolledBack := newNamedStagedScenario(t, scenarioName(t)+"-back", n, all, bakes(intstr.FromInt32(2), time.Hour))
	rolledBack.awaitGood()
	rolledBack.upgradeTo("side:v2")
	rolledBack.awaitReason(v1alpha1.ReasonBaking)
	_, err := rolledBack.requestStep(protocol.AbortUpdate, 0)
	require.NoError(t, err)
	rolledBack.awaitQuarantine()
	baking := newNamedStagedScenario(t, scenarioName(t)+"-bake", n, all, bakes(intstr.FromInt32(2), time.Hour))
	baking.upgradeTo("side:v2")
	baking.awaitReason(v1alpha1.ReasonBaking)
	reached := baking.stored().Status.Rollout.Stage.ReachedAt

	require.NoError(t, replayHistories(s.ctx), "the histories made so far, which are lost now")
	require.NoError(t, stack.Kill(cluster.Temporal))
	require.NoError(t, stack.Kill("webhook"))
	require.NoError(t, stack.StartAgain(s.ctx, "webhook"))
	assert.Equal(t, map[string]int{"side:v1": 20}, sidecars(rolledBack.dryRun(20)), "new pods while Temporal is down")
	require.NoError(t, stack.ForgetWorkflows(s.ctx))
	require.NoError(t, stack.StartAgain(s.ctx, cluster.Temporal))

	s.stillPaused(pause, paused)
	s.signal(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.await(observer.Converged(8))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)

	rolledBack.awaitPhase(protocol.PhaseQuarantined)
	assert.Equal(t, 2, rolledBack.watched.Asked("side:v2"), "pods that were ever upgraded")
	status := baking.awaitPhase(protocol.PhaseBaking)
	assert.WithinDuration(t, reached.Time, *status.Stage.Reached, time.Millisecond)
	assert.Equal(t, 2, baking.watched.View().Updated)
	baking.promoteFully()
	baking.await(observer.Converged(n))
}
