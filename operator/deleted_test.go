package operator

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

// The cache may still have it.
func TestTheStatusOfADeletedSetIsNoError(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	metrics, err := newMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	r := &reconciler{client: fake.NewClientBuilder().WithScheme(scheme).Build(), metrics: metrics, clock: clock.RealClock{}}
	before := fixture.SidecarSet("gone")
	set := before.DeepCopy()
	set.Status.LatestRevision = "gone-1"
	require.NoError(t, r.publish(t.Context(), before, set, &observation{}, outcome{}))
}
