package temporal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outrigger/outrigger/api/protocol"
)

// ExplainFleet returns the reason for a missing namespace and for wrong TLS options. A call succeeds once the
// namespace exists.
func TestSpec12_9_ACheckOfARealServerFindsTheCause(t *testing.T) {
	address := startTemporal(t)
	reason := func(flags *Flags) string {
		c := connect(t, flags)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := c.DescribeTaskQueue(ctx, protocol.FleetTaskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
		reason, _ := ExplainFleet(err)
		return reason
	}
	assert.Empty(t, reason(&Flags{Address: address}))
	assert.Equal(t, FleetNamespace, reason(&Flags{Address: address, Namespace: "fleet"}))
	assert.Equal(t, FleetHandshake, reason(&Flags{Address: address, TLS: new(true)}))
	server := newAuthority(t, "server")
	proxied := startProxy(t, address, server.serverConfig(t, serverName, time.Hour, nil))
	assert.Equal(t, FleetHandshake, reason(&Flags{Address: proxied.address, TLS: new(true), ServerName: serverName}))
	_, err := connect(t, &Flags{Address: address}).WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "fleet", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	later := connect(t, &Flags{Address: address, Namespace: "fleet"})
	retry(t, func(ctx context.Context) error {
		_, err := later.DescribeTaskQueue(ctx, protocol.FleetTaskQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
		return err
	})
}
