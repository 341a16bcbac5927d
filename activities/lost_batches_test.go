package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
)

// attempt is one of a batch, which takes the Lease and then hangs until the test ends, as
// far as the server knows.
type attempt struct {
	number int32
	done   chan struct{}
}

func TestABatchThatWasLostWithItsProcessGoesOnAtOnce(t *testing.T) {
	var sent heartbeats
	c := startTemporal(t, &sent)
	before, _ := newActivities(t, interceptor.Funcs{}, webSet(1))
	before.PodUID = "pod-1"
	begun := make(chan attempt)
	w := worker.New(c, "queue", worker.Options{})
	w.RegisterWorkflow(oneBatch)
	w.RegisterActivityWithOptions(func(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		lease := before.lease(input.SidecarSet, input.Run)
		lease.task = activity.GetInfo(ctx).TaskToken
		if _, err := acquire(ctx, lease); err != nil {
			return protocol.UpgradeBatchResult{}, err
		}
		this := attempt{activity.GetInfo(ctx).Attempt, make(chan struct{})}
		begun <- this
		<-this.done
		return protocol.UpgradeBatchResult{}, nil
	}, activity.RegisterOptions{Name: protocol.UpgradeBatchActivity})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := c.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{TaskQueue: "queue"}, oneBatch,
		protocol.UpgradeBatchInput{SidecarSet: webSetReference, Generation: 2, Run: "one"})
	require.NoError(t, err)
	first := <-begun
	defer close(first.done)

	end := func(ctx context.Context, token []byte, cause error) error {
		return c.CompleteActivity(ctx, token, nil, cause)
	}
	endAs := func(podUID string) int {
		after := &Activities{Live: before.Live, SystemNamespace: before.SystemNamespace, PodUID: podUID}
		ended, err := after.EndLostBatches(t.Context(), end)
		require.NoError(t, err)
		return ended
	}
	assert.Zero(t, endAs("pod-2"), "others may be alive")
	assert.Zero(t, endAs(""), "nobody knows")
	lease, err := leaseOf(before, "one").read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, endAs("pod-1"))
	second := <-begun
	assert.Equal(t, []int32{1, 2}, []int32{first.number, second.number})

	// What is late, or was read before, is about an attempt that is over.
	lost, err := before.endLostBatch(t.Context(), lease, end)
	require.NoError(t, err)
	assert.False(t, lost)
	close(second.done)
	require.NoError(t, run.Get(t.Context(), nil))
	assert.Zero(t, endAs("pod-1"), "the batch has ended")
}
