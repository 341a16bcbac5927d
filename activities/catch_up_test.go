package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// countedLists counts the list requests for pods in lists. countedLists sets the resourceVersion of each list
// to version, because the fake client sets none.
func countedLists(version string, lists *int) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if metadata, ok := list.(*metav1.PartialObjectMetadataList); ok {
			*lists++
			metadata.ResourceVersion = version
		}
		return err
	}}
}

func TestACacheThatIsMomentsBehindIsWaitedForAndNoPodIsListed(t *testing.T) {
	lists := 0
	cluster := newTestCluster(t, countedLists("20", &lists), webSet(2), webPod("written"), webPod("left"))
	b := cluster.batchOf("written", "left")
	cluster.pods.version.Store("19")
	done := make(chan error, 1)
	go func() { done <- inActivity(t, nil, b.awaitWritesOfOthers) }()
	require.Eventually(t, cluster.clock.HasWaiters, 10*time.Second, time.Millisecond)
	cluster.Changes.wake("logs")
	pod := webPod("written")
	cluster.edit(pod, func() { upgraded(pod) })
	cluster.sync()
	cluster.pods.version.Store("20")
	cluster.Changes.wake("logs")
	require.NoError(t, <-done)
	assert.Equal(t, 1, lists, "of one pod, for its resourceVersion")
	unseen, err := b.before.count(t.Context())
	require.NoError(t, err)
	assert.Zero(t, unseen)
	require.NoError(t, inActivity(t, nil, b.catchUp))
	assert.Equal(t, []string{"written"}, writtenNames(b.result().Written))
	assert.Equal(t, []string{"left"}, selectedNames(b.left))
}

func TestACacheThatStaysBehindIsComparedWithTheList(t *testing.T) {
	lists := 0
	pod := webPod("written")
	cluster := newTestCluster(t, countedLists("20", &lists), webSet(2), pod, webPod("left"))
	b := cluster.batchOf("written", "left")
	cluster.pods.version.Store("19")
	cluster.edit(pod, func() { upgraded(pod) })
	done := make(chan error, 1)
	go func() { done <- inActivity(t, nil, b.awaitWritesOfOthers) }()
	require.Eventually(t, cluster.clock.HasWaiters, 10*time.Second, time.Millisecond)
	cluster.clock.Step(catchUpTime)
	require.NoError(t, <-done)
	assert.Equal(t, 2, lists)
	unseen, err := b.before.count(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, unseen)
}
