package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec7_2_ConditionsAreWrittenWhereTheyAreOutOfDate(t *testing.T) {
	pods := []protocol.PodReference{refTo("cannot"), refTo("can"), refTo("gone")}
	for name, c := range map[string]struct {
		generation int64
		written    []string
	}{
		"of the set's generation": {2, []string{"cannot"}},
		"of another generation":   {1, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("cannot", notUpgradable), webPod("can"))
			cluster.Status = cluster.Live.(client.Client).Status()
			var result protocol.WriteUpgradableConditionsResult
			err := inActivity(t, nil, func(ctx context.Context) (err error) {
				result, err = cluster.WriteUpgradableConditions(ctx, protocol.WriteUpgradableConditionsInput{
					SidecarSet: webSetReference, Generation: c.generation, Pods: pods,
				})
				return err
			})
			require.NoError(t, err)
			assert.Equal(t, c.written, writtenNames(result.Written))
			assert.Empty(t, result.Rejected)
			assert.Equal(t, c.written, cluster.withCondition())
		})
	}
}

func (c *testCluster) withCondition() []string {
	c.t.Helper()
	found := []string{}
	for _, name := range []string{"can", "cannot"} {
		pod, err := readPod(c.t.Context(), c.Live, refTo(name))
		require.NoError(c.t, err)
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1alpha1.UpgradableCondition && condition.Status == corev1.ConditionFalse {
				found = append(found, name)
			}
		}
	}
	return found
}

// A worker that stops must return an error, because a result without an error means that all pods have been
// checked.
func TestConditionsThatAWorkerDidNotWriteAreWrittenByAnother(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("cannot", notUpgradable))
	stopping := make(chan struct{})
	close(stopping)
	err := inActivity(t, stopping, func(ctx context.Context) error {
		_, err := cluster.WriteUpgradableConditions(ctx, protocol.WriteUpgradableConditionsInput{
			SidecarSet: webSetReference, Generation: 2, Pods: []protocol.PodReference{refTo("cannot")},
		})
		return err
	})
	require.ErrorIs(t, err, errStopping)
}
