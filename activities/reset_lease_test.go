package activities

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// resetOne runs a reset batch of a run for pod a.
func resetOne(t *testing.T, cluster *testCluster, run string) (result protocol.ResetBatchResult) {
	t.Helper()
	awaitOverTime(t, cluster, func() error {
		return inActivity(t, nil, func(ctx context.Context) (err error) {
			b := cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference, Pods: []protocol.PodReference{refTo("a")}, Run: run})
			ctx, stop := b.deadline.keep(ctx, func(context.Context) error { return nil })
			defer stop()
			result, err = b.resetAll(ctx, webSetReference)
			return err
		})
	})
	return result
}

// awaitOverTime calls do, and advances the clock until do returns.
func awaitOverTime(t *testing.T, cluster *testCluster, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	require.Eventually(t, func() bool {
		select {
		case err := <-done:
			return assert.NoError(t, err)
		default:
			cluster.clock.Step(heartbeatInterval / 4)
			return false
		}
	}, 30*time.Second, time.Millisecond)
}

// The activities of a terminated run continue for a while. A newer run of the same SidecarSet resets the pods.
func TestSpec7_5_AResetBatchStopsOnceAnotherRunTakesTheLease(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, hotSet(), hotPod("a"))
	cluster.Events = events.NewFakeRecorder(1)
	wire := cluster.overTheWire(noLimit, func(n int, w http.ResponseWriter) bool {
		if n > 1 {
			return false
		}
		two := leaseOf(cluster.Activities, "two")
		lease, err := two.read(t.Context())
		assert.NoError(t, err)
		assert.NotNil(t, lease, "the batch holds the Lease")
		if lease != nil {
			assert.NoError(t, two.hold(t.Context(), lease))
		}
		cluster.clock.Step(maxAge)
		return tooManyRequests(w)
	})
	assert.Equal(t, protocol.ResetBatchResult{Skipped: 1}, resetOne(t, cluster, "one"))
	assert.Empty(t, wire.acceptedPods())
	assert.Equal(t, "side:v1", cluster.images()["a"])
}

// A run may have no pod to upgrade, so its resets must not wait until an upgrade takes the Lease over.
func TestSpec7_5_ResetsTakeTheLeaseOver(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, hotSet(), hotPod("a"))
	cluster.Events = events.NewFakeRecorder(1)
	one, two := leaseOf(cluster.Activities, "one"), leaseOf(cluster.Activities, "two")
	_, err := acquire(t.Context(), one)
	require.NoError(t, err)
	assert.Equal(t, protocol.ResetBatchResult{Reset: 1}, resetOne(t, cluster, "two"))
	assert.Equal(t, "empty:1", cluster.images()["a"])
	assert.False(t, held(t, one))
	assert.False(t, held(t, two), "the cache of the first upgrade batch may not show the writes of the previous holder")
	assert.True(t, held(t, cluster.newResetFence(webSetReference, "two").lease), "the resets continue")
	var takenOver bool
	awaitOverTime(t, cluster, func() (err error) {
		takenOver, err = acquire(t.Context(), two)
		return err
	})
	assert.True(t, takenOver)
	assert.True(t, held(t, two))
	lease, err := two.read(t.Context())
	require.NoError(t, err)
	assert.NotContains(t, lease.Annotations, v1alpha1.NextHolderAnnotation)
}

// The histories of earlier releases contain reset batches without the id of the run.
func TestAResetBatchOfAnEarlierReleaseNeedsNoLease(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, hotSet(), hotPod("a"))
	cluster.Events = events.NewFakeRecorder(1)
	_, err := acquire(t.Context(), leaseOf(cluster.Activities, "one"))
	require.NoError(t, err)
	assert.Equal(t, protocol.ResetBatchResult{Reset: 1}, resetOne(t, cluster, ""))
	assert.True(t, held(t, leaseOf(cluster.Activities, "one")))
}
