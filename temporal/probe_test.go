package temporal

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/enums/v1"
	workflowv1 "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// The workers of the pinned run have stopped. Therefore, only the run that is not pinned shows whether workers
// respond.
func TestSpec8_10_ARunThatIsPinnedToAVersionIsNotQueried(t *testing.T) {
	c := connect(t, &Flags{Address: startTemporal(t)})
	const queue = "rollouts"
	selected := func() *common.WorkflowExecution {
		run, err := CompletedRun(t.Context(), c.WorkflowService(), DefaultNamespace, queue)
		require.NoError(t, err)
		return run
	}
	assert.Nil(t, selected())

	pinned := startVersion(t, c, queue, "1", workflow.VersioningBehaviorPinned)
	completeRun(t, c, queue, "pinned")
	pinned.Stop()
	assert.Nil(t, selected())

	current := startVersion(t, c, queue, "2", workflow.VersioningBehaviorAutoUpgrade)
	completeRun(t, c, queue, "movable")
	run := selected()
	require.Equal(t, "movable", run.GetWorkflowId())
	responds, err := RunResponds(t.Context(), c.WorkflowService(), DefaultNamespace, run)
	require.NoError(t, err)
	assert.True(t, responds)

	current.Stop()
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	responds, err = RunResponds(short, c.WorkflowService(), DefaultNamespace, run)
	require.NoError(t, err)
	assert.False(t, responds)

	_, err = RunResponds(t.Context(), c.WorkflowService(), DefaultNamespace, &common.WorkflowExecution{WorkflowId: "removed"})
	assert.True(t, IsNotFound(err), err)
}

// startVersion starts a worker, and makes the version of the worker current.
func startVersion(t *testing.T, c client.Client, queue, build string, behavior workflow.VersioningBehavior) worker.Worker {
	t.Helper()
	const name = "d"
	w := worker.New(c, queue, worker.Options{DeploymentOptions: worker.DeploymentOptions{
		UseVersioning: true, Version: worker.WorkerDeploymentVersion{DeploymentName: name, BuildID: build}, DefaultVersioningBehavior: behavior,
	}})
	w.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	require.NoError(t, w.Start())
	retry(t, func(ctx context.Context) error { // The server registers pollers with a delay.
		_, err := c.WorkerDeploymentClient().GetHandle(name).SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err
	})
	return w
}

// completeRun executes a run, and waits until the list of completed runs contains the run. The list is
// eventually consistent.
func completeRun(t *testing.T, c client.Client, queue, id string) {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: queue}, protocol.RolloutWorkflow)
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.Eventually(t, func() bool {
		counted, err := c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Query: fmt.Sprintf("WorkflowId='%s' AND ExecutionStatus='Completed'", id),
		})
		return err == nil && counted.GetCount() == 1
	}, timeout, 50*time.Millisecond)
}

func TestPinnedVersions(t *testing.T) {
	v1, v2 := &deployment.WorkerDeploymentVersion{DeploymentName: "d", BuildId: "1"}, &deployment.WorkerDeploymentVersion{DeploymentName: "d", BuildId: "2"}
	pinned := &workflowv1.WorkflowExecutionVersioningInfo{Behavior: enums.VERSIONING_BEHAVIOR_PINNED, DeploymentVersion: v1}
	assert.Equal(t, v1, PinnedVersion(pinned))
	assert.Nil(t, PinnedVersion(nil))
	assert.Nil(t, PinnedVersion(&workflowv1.WorkflowExecutionVersioningInfo{Behavior: enums.VERSIONING_BEHAVIOR_AUTO_UPGRADE, DeploymentVersion: v1}))
	pinned.VersioningOverride = &workflowv1.VersioningOverride{Override: &workflowv1.VersioningOverride_Pinned{Pinned: &workflowv1.VersioningOverride_PinnedOverride{Version: v2}}}
	assert.Equal(t, v2, PinnedVersion(pinned))
	pinned.VersioningOverride = &workflowv1.VersioningOverride{Override: &workflowv1.VersioningOverride_AutoUpgrade{AutoUpgrade: true}}
	assert.Nil(t, PinnedVersion(pinned))
}
