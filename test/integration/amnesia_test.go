package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

func TestAPauseOutlivesTemporalsDatabase(t *testing.T) {
	s := newScenario(t, 8, nil)
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	pause := protocol.Pause{By: "ann", Reason: "errors in the logs"}
	paused := s.pause(pause)
	s.stillPaused(pause, paused)
	require.NoError(t, replayHistories(s.ctx), "the histories made so far, which are lost now")
	require.NoError(t, stack.Kill(cluster.Temporal))
	require.NoError(t, stack.ForgetWorkflows(s.ctx))
	require.NoError(t, stack.StartAgain(s.ctx, cluster.Temporal))
	s.stillPaused(pause, paused)
	s.signal(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.await(observer.Converged(8))
	s.within(2)
	s.awaitPhase(protocol.PhaseComplete)
}
