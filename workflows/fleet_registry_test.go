package workflows

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// Each member is notified of a freeze and of the end of the freeze, including a member that joins during the
// freeze.
func TestSpec12_7_MembersHearOfAFreeze(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(FleetRegistry, workflow.RegisterOptions{Name: protocol.FleetRegistryWorkflow})
	heard := map[string][]bool{}
	var hearing sync.Mutex
	env.RegisterActivityWithOptions(func(ctx context.Context, freeze protocol.FleetFreeze) error {
		hearing.Lock()
		defer hearing.Unlock()
		uid := activity.GetInfo(ctx).TaskQueue[len(protocol.FleetTaskQueue)+1:]
		heard[uid] = append(heard[uid], freeze.Frozen)
		return nil
	}, activity.RegisterOptions{Name: protocol.FleetFreezeActivity})
	update := func(after time.Duration, name string, freeze protocol.FleetFreeze) {
		env.RegisterDelayedCallback(func() {
			env.UpdateWorkflow(name, name, &testsuite.TestUpdateCallback{
				OnAccept: func() {}, OnReject: func(err error) { assert.NoError(t, err) }, OnComplete: func(_ any, err error) { assert.NoError(t, err) },
			}, freeze)
		}, after)
	}
	announce := func(after time.Duration, uid string) {
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(protocol.AnnounceSignal, protocol.FleetMember{UID: uid, Name: uid}) }, after)
	}
	announce(time.Minute, "a")
	update(2*time.Minute, protocol.FreezeUpdate, protocol.FleetFreeze{By: "ann", Reason: "sales"})
	announce(3*time.Minute, "b")
	update(4*time.Minute, protocol.UnfreezeUpdate, protocol.FleetFreeze{By: "ann"})
	env.RegisterDelayedCallback(func() {
		answer, err := env.QueryWorkflow(protocol.StatusQuery)
		require.NoError(t, err)
		var registry protocol.FleetRegistry
		require.NoError(t, answer.Get(&registry))
		assert.Equal(t, map[string]int{"a": 2, "b": 2}, registry.Heard)
		env.CancelWorkflow()
	}, time.Hour)
	env.ExecuteWorkflow(protocol.FleetRegistryWorkflow, protocol.FleetRegistry{})
	assert.ErrorContains(t, env.GetWorkflowError(), "canceled")
	assert.Equal(t, map[string][]bool{"a": {true, false}, "b": {true, false}}, heard)
}
