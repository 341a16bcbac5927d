package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// attempt is an attempt of a batch. The attempt acquires the Lease and then blocks until the test closes
// done.
type attempt struct {
	number int32
	done   chan struct{}
}

func TestALostBatchIsRetriedAtOnce(t *testing.T) {
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
		lost, err := after.LostBatches(t.Context())
		require.NoError(t, err)
		ended := 0
		for _, batch := range lost {
			given, err := batch.Release(t.Context(), end)
			require.NoError(t, err)
			if given {
				ended++
			}
		}
		return ended
	}
	assert.Zero(t, endAs("pod-2"), "others may be alive")
	assert.Zero(t, endAs(""), "nobody knows")
	read, err := before.LostBatches(t.Context())
	require.NoError(t, err)
	require.Len(t, read, 1)
	assert.Equal(t, 1, endAs("pod-1"))
	second := <-begun
	assert.Equal(t, []int32{1, 2}, []int32{first.number, second.number})

	// The Lease was read before the attempt ended, so the release has no effect.
	given, err := read[0].Release(t.Context(), end)
	require.NoError(t, err)
	assert.False(t, given)
	close(second.done)
	require.NoError(t, run.Get(t.Context(), nil))
	assert.Zero(t, endAs("pod-1"), "the batch has ended")
}

func TestOnlyBatchesThatMayBeInProgressAreLost(t *testing.T) {
	lease := func(name, holder, podUID, task string) client.Object {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: name, Annotations: map[string]string{
				v1alpha1.PodUIDAnnotation: podUID, v1alpha1.TaskTokenAnnotation: task,
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	a, _ := newActivities(t, interceptor.Funcs{},
		lease("in-hand", "run", "pod-1", "dGFzaw=="),
		lease("released", "", "pod-1", "dGFzaw=="),
		lease("of-another", "run", "pod-2", "dGFzaw=="),
		lease("without-task", "run", "pod-1", ""),
		lease("edited", "run", "pod-1", "no base64"))
	a.PodUID = "pod-1"
	lost, err := a.LostBatches(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []LostBatch{{Lease: "in-hand", task: []byte("task")}}, lost)
}
