package cli

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// emptyTemporal is a Temporal server without runs, such as a server that the operator does not use.
type emptyTemporal struct {
	workflowservice.UnimplementedWorkflowServiceServer
}

func (emptyTemporal) SignalWorkflowExecution(context.Context, *workflowservice.SignalWorkflowExecutionRequest) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	return nil, status.Error(codes.NotFound, "workflow not found")
}

func serveEmptyTemporal(t *testing.T) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, emptyTemporal{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func TestAPauseThatFindsNoRunOfAnUnfinishedRolloutFails(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	address := serveEmptyTemporal(t)
	for reason, fails := range map[string]bool{v1alpha1.ReasonRolloutProgress: true, v1alpha1.ReasonNotUpgradablePods: false} {
		set := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) {
			s.Status = v1alpha1.SidecarSetStatus{ObservedGeneration: 1, MatchedPods: 3, UpdatedPods: 1, Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionProgressing, Status: "True", Reason: reason},
			}}
		})
		s := newTestCluster(t, set)
		got := s.run("pause", "logs", "--temporal-payload-key-dir=", "--temporal-address="+address)
		if fails {
			require.EqualError(t, got.err, "pause the rollout of SidecarSet logs: Temporal at "+address+", namespace default has no open run of the SidecarSet, "+
				"but status shows an unfinished rollout: if the operator uses another Temporal, "+otherTemporal+"; spec.updateStrategy.paused pauses the next run: "+pausePatch)
			assert.Empty(t, got.out)
		} else {
			require.NoError(t, got.err)
		}
		require.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		assert.Equal(t, !fails, set.Spec.UpdateStrategy.Paused, reason)
	}
}
