package operator

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

// The cache may still contain the deleted SidecarSet.
func TestTheStatusOfADeletedSetIsNoError(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	metrics := newMetrics(prometheus.NewRegistry())
	status := &statusStep{
		statusWriter: &statusWriter{reported: &reports{}, client: fake.NewClientBuilder().WithScheme(scheme).Build(), writes: metrics.statusWrites},
		evicts:       evictsNothing,
		metrics:      metrics.rollouts,
	}
	before := fixture.SidecarSet("gone")
	set := before.DeepCopy()
	set.Status.LatestRevision = "gone-1"
	require.NoError(t, status.reconcile(t.Context(), &pass{before: before, set: set}))
}
