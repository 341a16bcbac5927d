package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// maxUnavailable returns a function that sets maxUnavailable of a SidecarSet.
func maxUnavailable(n int32) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(n)) }
}

// The number of unavailable pods never exceeds maxUnavailable, with fast, slow and failing kubelets, and with
// edits during the rollout.
func TestSpec7_5_MaxUnavailableHoldsForAllKubeletsAndEdits(t *testing.T) {
	t.Parallel()
	late, slow := map[string]string{clockBehind: "5s"}, map[string]string{readyAfter: "4s"}
	both := map[string]string{clockBehind: "5s", readyAfter: "4s"}
	for name, c := range map[string]struct {
		pods, limit int32
		hot         bool
		kubelet     map[string]string
		// images contains the images that are rolled out one after the other. The next rollout starts when the
		// pods in progress use all slots, and at least one pod has the previous image.
		images []string
	}{
		"clocks a second behind":              {60, 8, false, map[string]string{clockBehind: "1s"}, []string{"side:v2"}},
		"clocks five seconds behind":          {60, 8, false, late, []string{"side:v2"}},
		"hot and clocks behind":               {24, 8, true, late, []string{"side:v2"}},
		"three generations of slow pods":      {24, 8, false, slow, []string{"side:v2", "side:v3", "side:v4"}},
		"slow pods and clocks behind":         {24, 8, false, both, []string{"side:v2", "side:v3", "side:v4"}},
		"hot and slow":                        {16, 8, true, slow, []string{"side:v2", "side:v3", "side:v4"}},
		"a bad image and a good one":          {24, 8, false, nil, []string{"side:bad", "side:v2"}},
		"two bad images and a good one":       {6, 1, false, nil, []string{"side:bad", "other:bad", "side:v2"}},
		"hot with a bad image and a good one": {16, 8, true, nil, []string{"side:bad", "side:v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			strategy := maxUnavailable(c.limit)
			if c.hot {
				strategy = hot(c.limit)
			}
			s := newKubeletScenario(t, c.pods, c.kubelet, strategy)
			for _, image := range c.images[:len(c.images)-1] {
				moving := s.watched.View().InFlight
				s.upgradeTo(image)
				s.await(func(v observer.View) bool { return v.Updated >= max(1, int(c.limit)-moving) })
			}
			s.upgradeTo(c.images[len(c.images)-1])
			s.await(observer.Converged(int(c.pods)))
			s.within(int(c.limit))
			s.awaitPhase(protocol.PhaseComplete)
		})
	}
}

// If pods became unready after the plan of a batch, for example while no worker was running, a worker that
// claims the batch again writes fewer pods.
func TestSpec7_5_ABatchThatIsClaimedAgainFitsTheSlotsLeft(t *testing.T) {
	s := newByHandScenario(t, 10)
	s.onlyWorker("worker-slow", "--kube-api-qps=1", "--kube-api-burst=1")
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},
		{"op":"replace","path":"/spec/updateStrategy/maxUnavailable","value":"50%"}]`)
	s.await(func(v observer.View) bool { return v.Updated == 5 })
	done := s.images("side:v2")
	for _, name := range done {
		s.report(name, "side:v2", "sha256:v2", 1)
	}
	s.await(func(v observer.View) bool { return v.Updated >= 6 })
	require.NoError(t, stack.Kill("worker-slow"))
	require.Less(t, s.watched.View().Updated, 8, "the worker is not slow enough")
	for _, name := range done[:3] {
		s.patchPodStatus(s.pod(name), `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	}
	startWorkers(s.ctx, t)
	s.awaitStatus("the run to wait for pods", func(status protocol.RolloutStatus) bool {
		return status.Phase == protocol.PhaseWaiting && status.Counts.Unavailable >= 5
	})
	v := s.await(func(observer.View) bool { return true })
	assert.LessOrEqual(t, v.InFlight+3, 5, "pods that do not serve")
}

func TestSpec7_5_WithMaxUnavailable0UnavailablePodsAreUpgraded(t *testing.T) {
	t.Parallel()
	s := newScenario(t, 6, maxUnavailable(3))
	s.upgradeTo("side:bad")
	s.await(func(v observer.View) bool { return v.Updated == 3 && v.Ready == 3 })
	s.watched.Expect("side:v2")
	s.edit(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"},
		{"op":"replace","path":"/spec/updateStrategy/maxUnavailable","value":0}]`)
	s.await(func(v observer.View) bool { return v.Updated == 3 && v.Ready == 6 && v.InFlight == 0 })
	s.within(3)
}
