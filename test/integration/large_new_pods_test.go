//go:build large

package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// The test creates 900 pods during a step of 5 %, and 600 pods after an abort.
func TestLargeScaleUpFollowsTheStep(t *testing.T) {
	s := newStagedScenario(t, 100, intstr.FromString("20%"), outriggerv1.RolloutStep{UpTo: intstr.FromString("5%"), Approval: &outriggerv1.StepApproval{}})
	s.awaitGood()
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonAwaitingApproval)
	s.scale(1000)
	s.await(func(v observer.View) bool { return v.Pods == 1000 && v.Ready == 1000 })
	created := sidecars(s.pods())["side:v2"] - 5
	t.Logf("%d of 900 new pods (%.1f %%) have the new image", created, float64(created)/9)
	assert.InDelta(t, 45, created, 18, "3 to 7 percent")

	_, err := s.requestStep(protocol.AbortUpdate, 0)
	require.NoError(t, err)
	aborted := time.Now()
	late := 0
	var latest time.Duration
	for time.Since(aborted) < 6*time.Second {
		began := time.Since(aborted)
		if aborted := sidecars(s.dryRun(20))["side:v2"]; aborted > 0 {
			if latest = began; latest > 2*time.Second {
				late += aborted
			}
		}
	}
	t.Logf("the last request that got the aborted content began %v after the abort", latest)
	assert.Zero(t, late, "pods with the aborted content later than 2 s")

	s.awaitQuarantine()
	require.NoError(t, stack.Kill(cluster.Temporal))
	require.NoError(t, stack.Kill("webhook"))
	require.NoError(t, stack.StartAgain(s.ctx, "webhook"))
	assert.Zero(t, sidecars(s.dryRun(300))["side:v2"], "pods while Temporal is down, after a restart of the webhook")
	require.NoError(t, stack.StartAgain(s.ctx, cluster.Temporal))
}
