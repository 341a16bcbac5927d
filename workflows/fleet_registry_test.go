package workflows

import (
	"context"
	"maps"
	"slices"
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
			env.UpdateWorkflow(name, name+after.String(), &testsuite.TestUpdateCallback{
				OnAccept: func() {}, OnReject: func(err error) { assert.NoError(t, err) }, OnComplete: func(_ any, err error) { assert.NoError(t, err) },
			}, freeze)
		}, after)
	}
	announce := func(after time.Duration, uid string) {
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(protocol.AnnounceSignal, protocol.FleetMember{UID: uid, Name: uid}) }, after)
	}
	announce(time.Minute, "a")
	until, frozenAt := env.Now().UTC().Add(10*time.Minute), env.Now().UTC().Add(5*time.Minute)
	update(2*time.Minute, protocol.FreezeUpdate, protocol.FleetFreeze{By: "ann", Reason: "sales"})
	announce(3*time.Minute, "b")
	update(4*time.Minute, protocol.UnfreezeUpdate, protocol.FleetFreeze{By: "ann"})
	update(5*time.Minute, protocol.FreezeUpdate, protocol.FleetFreeze{By: "ann", Reason: "sales", Until: &until})
	announce(30*time.Minute, "c")
	env.RegisterDelayedCallback(func() {
		answer, err := env.QueryWorkflow(protocol.StatusQuery)
		require.NoError(t, err)
		var registry protocol.FleetRegistry
		require.NoError(t, answer.Get(&registry))
		assert.Equal(t, map[string]int{"a": 4, "b": 4, "c": 4}, registry.Heard)
		assert.Equal(t, frozenAt, registry.Freeze.Since, "members keep a newer freeze, which the fleet has lost")
		env.CancelWorkflow()
	}, time.Hour)
	env.ExecuteWorkflow(protocol.FleetRegistryWorkflow, protocol.FleetRegistry{})
	assert.ErrorContains(t, env.GetWorkflowError(), "canceled")
	assert.Equal(t, map[string][]bool{"a": {true, false, true, false}, "b": {true, false, true, false}, "c": {false}}, heard)
}

// The run continued as new during a freeze, and no worker ran when the freeze ended.
func TestSpec12_7_AFreezeThatIsOverEndsImmediately(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(FleetRegistry, workflow.RegisterOptions{Name: protocol.FleetRegistryWorkflow})
	var heard []bool
	env.RegisterActivityWithOptions(func(_ context.Context, freeze protocol.FleetFreeze) error {
		heard = append(heard, freeze.Frozen)
		return nil
	}, activity.RegisterOptions{Name: protocol.FleetFreezeActivity})
	over := env.Now().Add(-time.Hour)
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Minute)
	env.ExecuteWorkflow(protocol.FleetRegistryWorkflow, protocol.FleetRegistry{
		Members: map[string]protocol.FleetMember{"a": {UID: "a", Name: "a"}}, Heard: map[string]int{"a": 3},
		Freeze: &protocol.FleetFreeze{Frozen: true, Sequence: 3, Until: &over},
	})
	assert.ErrorContains(t, env.GetWorkflowError(), "canceled")
	assert.Equal(t, []bool{false}, heard)
}

// The timer for the original end of a freeze must not end the extended freeze.
func TestSpec12_7_AnExtendedFreezeDoesNotEnd(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(FleetRegistry, workflow.RegisterOptions{Name: protocol.FleetRegistryWorkflow})
	until := env.Now().Add(10 * time.Minute)
	extended := protocol.FleetFreeze{By: "ann", Reason: "sales go on", Until: new(until.Add(time.Hour))}
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(protocol.FreezeUpdate, "extension", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { assert.NoError(t, err) }, OnComplete: func(any, error) {},
		}, extended)
	}, 9*time.Minute)
	env.RegisterDelayedCallback(func() {
		answer, err := env.QueryWorkflow(protocol.StatusQuery)
		require.NoError(t, err)
		var registry protocol.FleetRegistry
		require.NoError(t, answer.Get(&registry))
		assert.True(t, registry.Freeze.Frozen)
		assert.Equal(t, "sales go on", registry.Freeze.Reason)
		env.CancelWorkflow()
	}, 30*time.Minute)
	env.ExecuteWorkflow(protocol.FleetRegistryWorkflow, protocol.FleetRegistry{Freeze: &protocol.FleetFreeze{Frozen: true, Sequence: 1, Until: &until}})
	assert.ErrorContains(t, env.GetWorkflowError(), "canceled")
}

// A cluster was rebuilt with the same name, so a user removes the old cluster by its uid.
func TestSpec12_1_ARebuiltClusterStaysInTheFleet(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(FleetRegistry, workflow.RegisterOptions{Name: protocol.FleetRegistryWorkflow})
	registry := protocol.FleetRegistry{Members: map[string]protocol.FleetMember{
		"old": {UID: "old", Name: "eu-1"}, "new": {UID: "new", Name: "eu-1"},
	}}
	rejected := 0
	remove := func(cluster, rejection string) {
		env.UpdateWorkflow(protocol.RemoveMemberUpdate, cluster, &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { rejected++; require.ErrorContains(t, err, rejection) },
			OnComplete: func(_ any, err error) { require.NoError(t, err) },
		}, cluster)
	}
	env.RegisterDelayedCallback(func() {
		remove("eu-1", "2 clusters have the name eu-1: remove one of them by its uid: new, old")
		remove("eu-2", "no cluster of the fleet has the name or the uid eu-2")
		remove("old", "no rejection")
	}, time.Minute)
	env.RegisterDelayedCallback(func() {
		answer, err := env.QueryWorkflow(protocol.StatusQuery)
		require.NoError(t, err)
		var registry protocol.FleetRegistry
		require.NoError(t, answer.Get(&registry))
		assert.Equal(t, 2, rejected)
		assert.Equal(t, []string{"new"}, slices.Collect(maps.Keys(registry.Members)))
		env.CancelWorkflow()
	}, 2*time.Minute)
	env.ExecuteWorkflow(protocol.FleetRegistryWorkflow, registry)
	assert.ErrorContains(t, env.GetWorkflowError(), "canceled")
}
