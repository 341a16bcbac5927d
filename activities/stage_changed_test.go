package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

func TestSpec11_12_AStageThatStatusDoesNotShowIsReportedInTheLease(t *testing.T) {
	recorded := &protocol.Stage{Generation: 2, Steps: 2, Policy: "edge", Step: &protocol.Step{UpTo: intstr.FromInt32(1), Approval: true}, Reached: &noon}
	for name, c := range map[string]struct {
		change   func(*protocol.Stage) *protocol.Stage
		reported bool
	}{
		"recorded":  {func(s *protocol.Stage) *protocol.Stage { return s }, false},
		"no policy": {func(*protocol.Stage) *protocol.Stage { return nil }, false},
		"approved":  {func(s *protocol.Stage) *protocol.Stage { s.Approval = &protocol.Approval{By: "ann"}; return s }, true},
		"aborted":   {func(s *protocol.Stage) *protocol.Stage { s.Aborted = &protocol.Approval{By: "ann"}; return s }, true},
		"promoted":  {func(s *protocol.Stage) *protocol.Stage { return s.Next() }, true},
	} {
		for _, leased := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				set := webSet(1)
				set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 2}
				stage.ToStatus(set, recorded)
				cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a", upgraded), webPod("b"))
				lease := leaseOf(cluster.Activities, "one")
				if leased {
					_, err := acquire(t.Context(), lease)
					require.NoError(t, err)
				}
				asked := *recorded
				next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Run: "one", Stages: true, Stage: c.change(&asked)})
				require.NoError(t, inActivity(t, nil, func(ctx context.Context) error {
					next.reportStage(ctx)
					next.reportStage(ctx)
					return nil
				}))
				left, err := lease.read(t.Context())
				require.NoError(t, err)
				if !c.reported {
					assert.True(t, left == nil || left.Annotations[v1alpha1.StageChangedAnnotation] == "")
					return
				}
				assert.NotEmpty(t, left.Annotations[v1alpha1.StageChangedAnnotation])
				assert.Equal(t, leased, held(t, lease), "the holder stays")
			})
		}
	}
}

func TestSpec8_2_AResumeThatStatusDoesNotShowIsReportedInTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		shown            *v1alpha1.RolloutPause
		paused, reported bool
	}{
		"resumed":           {&v1alpha1.RolloutPause{By: "ann"}, false, true},
		"paused":            {nil, true, true},
		"paused, recorded":  {&v1alpha1.RolloutPause{By: "ann"}, true, false},
		"without any pause": {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := webSet(1)
			set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: 2, Pause: c.shown}
			cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a", upgraded), webPod("b"))
			next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Run: "one", Stages: true, Paused: c.paused})
			require.NoError(t, inActivity(t, nil, func(ctx context.Context) error {
				next.reportStage(ctx)
				return nil
			}))
			left, err := leaseOf(cluster.Activities, "one").read(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.reported, left != nil && left.Annotations[v1alpha1.StageChangedAnnotation] != "")
		})
	}
}
