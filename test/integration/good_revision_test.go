package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// awaitGood waits until the last good revision in the status is the current content of the SidecarSet, and
// returns the SidecarSet.
func (s *scenario) awaitGood() *v1alpha1.SidecarSet {
	s.t.Helper()
	return s.awaitSet("the last good revision to be recorded", func(set *v1alpha1.SidecarSet) bool {
		good := set.Status.LastGoodRevision()
		return good != nil && good.Hash == set.Annotations[v1alpha1.HashAnnotation] && good.Revision == set.Status.LatestRevision
	})
}

// The app of one pod fails long after the upgrade of the pod, and does not become ready again.
func TestSpec7_5_APodWhoseAppFailsAfterTheRolloutStopsNoneThatFollows(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 6, maxUnavailable(1))
	s.upgradeTo("side:v2")
	s.await(observer.Converged(6))
	s.awaitGood()
	broken := s.pods()[2]
	_, err := kubectl(s.ctx, "", "set", "image", "pod/"+broken.Name, "-n", s.name, "app=app:bad")
	assert.NoError(t, err)
	s.await(func(v observer.View) bool { return v.Ready == 5 })

	for _, image := range []string{"side:v3", "side:v2"} {
		s.upgradeTo(image)
		s.await(func(v observer.View) bool { return v.Updated == 6 && v.InFlight == 0 && v.Ready == 5 })
		s.awaitPhase(protocol.PhaseComplete)
		s.awaitGood()
	}
	worst, event := s.watched.Worst()
	assert.LessOrEqual(t, worst, 1, "pods in flight at %s", event)
}
