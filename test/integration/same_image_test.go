package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/observer"
)

// The kubelet restarts a container if the name of its image changes, even if the new name refers to the running
// image.
func TestSpec7_5_MaxUnavailableHoldsWhenAnAliasNamesTheImageThatRuns(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 12, maxUnavailable(1))
	s.upgradeTo("docker.io/library/side:v1")
	view := s.await(observer.Converged(12))
	s.within(1)
	assert.Equal(t, int32(12), view.SidecarRestarts, "each restarts once")
	s.awaitPhase(protocol.PhaseComplete)
}

// Only the restart count shows that the container has restarted, because the image ID stays the same.
func TestSpec7_5_MaxUnavailableHoldsWhenAnImageIsPinnedToTheDigestThatRuns(t *testing.T) {
	t.Parallel()
	const digest = "sha256:aa"
	s := newByHandScenario(t, 4)
	for _, pod := range s.pods() {
		s.report(pod.Name, "side:v1", "docker.io/library/side@"+digest, 0)
	}
	s.upgradeTo("side:v1@" + digest)
	for done := 2; done <= 4; done += 2 {
		s.awaitStatus("the run to wait for the kubelet", func(status protocol.RolloutStatus) bool {
			return status.Counts.Updated == done && status.Counts.UpdatedReady == done-2 && status.Counts.Unavailable == 2
		})
		require.Len(t, s.images("side:v1@"+digest), done)
		for _, name := range s.images("side:v1@" + digest) {
			s.report(name, "side:v1", "docker.io/library/side@"+digest, 1)
		}
	}
	s.awaitPhase(protocol.PhaseComplete)
	s.awaitSet("all pods to be updated and ready", counts(4))
}
