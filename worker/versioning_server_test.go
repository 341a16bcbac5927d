package worker

import (
	"context"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/devserver"
)

const (
	deploymentName = "outrigger"
	timeout        = time.Minute
	pause          = 10 * time.Millisecond
	temporalBinary = "../bin/temporal"
)

// startTemporal runs the dev server, as the local stack does, until the test ends.
func startTemporal(t *testing.T) *testsuite.DevServer {
	return devserver.Start(t, temporalBinary, testsuite.DevServerOptions{
		SearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(protocol.SidecarSetAttribute).ValueSet(""),
			temporal.NewSearchAttributeKeyInt64(protocol.GenerationAttribute).ValueSet(0),
			temporal.NewSearchAttributeKeyKeyword(protocol.RolloutPhaseAttribute).ValueSet(""),
		),
		ExtraArgs: []string{
			"--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000",
			"--dynamic-config-value", "history.timerProcessorMaxPollRPS=2000",
			"--dynamic-config-value", "matching.numTaskqueueReadPartitions=1",
			"--dynamic-config-value", "matching.numTaskqueueWritePartitions=1",
		},
	})
}

// batch is an execution of UpgradeBatch by a build. The execution ends when release is closed.
type batch struct {
	build   string
	release chan struct{}
}

// pods counts the pods to upgrade. Each batch upgrades one pod.
type pods struct {
	mu      sync.Mutex
	left    int
	batches chan batch
}

func (p *pods) take() (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
	return p.left >= 0
}

// stub contains the activities of one build.
type stub struct {
	build string
	pods  *pods
}

func (s *stub) NextBatch(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
	if !s.pods.take() {
		return protocol.NextBatchResult{Phase: protocol.PhaseComplete}, nil
	}
	return protocol.NextBatchResult{Phase: protocol.PhaseProgressing, Pods: []protocol.SelectedPod{{}}}, nil
}

func (s *stub) UpgradeBatch(ctx context.Context, _ protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	running := batch{build: s.build, release: make(chan struct{})}
	select {
	case s.pods.batches <- running:
	case <-ctx.Done():
	}
	select {
	case <-running.release:
	case <-ctx.Done():
	}
	return protocol.UpgradeBatchResult{Written: []protocol.WrittenPod{{ResourceVersion: "1"}}}, ctx.Err()
}

func (s *stub) AwaitMigration(context.Context, protocol.AwaitMigrationInput) (protocol.AwaitMigrationResult, error) {
	return protocol.AwaitMigrationResult{}, nil
}

func (s *stub) ResetBatch(context.Context, protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
	return protocol.ResetBatchResult{}, nil
}

func (s *stub) PlanEvictions(context.Context, protocol.PlanEvictionsInput) (protocol.EvictionPlan, error) {
	return protocol.EvictionPlan{Ended: true}, nil
}

func (s *stub) EvictPods(context.Context, protocol.EvictPodsInput) (protocol.EvictPodsResult, error) {
	return protocol.EvictPodsResult{}, nil
}

func (s *stub) MeasureGate(context.Context, protocol.MeasureGateInput) (protocol.Measurement, error) {
	return protocol.Measurement{Phase: protocol.GateSuccess}, nil
}

func (s *stub) WriteUpgradableConditions(context.Context, protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
	return protocol.WriteUpgradableConditionsResult{}, nil
}

// workers is a group of workers with several builds on one task queue.
type workers struct {
	t      *testing.T
	server *testsuite.DevServer
	client client.Client
	queue  string
	pods   *pods
	// behavior is the versioning behavior of all builds.
	behavior string
	// deployment is unique for each test, because tests share a server.
	deployment string
}

func newWorkers(t *testing.T, server *testsuite.DevServer, queue string, left int) *workers {
	return &workers{t: t, server: server, client: server.Client(), queue: queue, deployment: deploymentName + "-" + queue, pods: &pods{left: left, batches: make(chan batch)}}
}

// host starts a worker. A worker without a build is unversioned.
func (f *workers) host(build string) {
	f.t.Helper()
	options := Options{MaxConcurrentSelects: 10, MaxConcurrentPatches: 10}
	if build != "" {
		var err error
		options.Versioning, err = Versioning{DeploymentName: f.deployment, BuildID: build, Behavior: f.behavior}.Resolve(nil)
		require.NoError(f.t, err)
	}
	h := &host{client: f.client, options: options, taskQueue: f.queue, log: logr.Discard(), activities: &stub{build, f.pods}}
	stop, err := h.start(make(chan error, 1))
	require.NoError(f.t, err)
	f.t.Cleanup(stop)
}

// await waits until yes returns true.
func (f *workers) await(what string, yes func(context.Context) bool) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return yes(f.t.Context()) }, timeout, pause, what)
}

// setCurrent waits until the server lists the task queues of a build, and makes the build current. An empty build
// selects unversioned workers.
func (f *workers) setCurrent(build string) {
	f.t.Helper()
	deployment := f.client.WorkerDeploymentClient().GetHandle(f.deployment)
	f.await("both queues of build "+build, func(ctx context.Context) bool {
		if build == "" {
			return true
		}
		version, err := deployment.DescribeVersion(ctx, client.WorkerDeploymentDescribeVersionOptions{BuildID: build})
		// A build polls three task queues: the queue of runs for workflow tasks and for activities, and the
		// queue of writes for activities.
		return err == nil && len(version.Info.TaskQueuesInfos) >= 3
	})
	// docs/temporal.md documents this command.
	args := []string{"worker", "deployment", "set-current-version", "--yes", "--address", f.server.FrontendHostPort(), "--deployment-name", f.deployment}
	if build == "" {
		args = append(args, "--unversioned")
	} else {
		args = append(args, "--build-id", build)
	}
	// DescribeVersion may succeed before the server can find the deployment of the version.
	f.await("the deployment of build "+build, func(ctx context.Context) bool {
		said, err := exec.CommandContext(ctx, temporalBinary, args...).CombinedOutput()
		if err != nil {
			f.t.Logf("%s: %s", err, said)
		}
		return err == nil
	})
}

func (f *workers) roll() client.WorkflowRun {
	f.t.Helper()
	run, err := f.client.ExecuteWorkflow(f.t.Context(), client.StartWorkflowOptions{ID: "sidecarset/" + f.queue, TaskQueue: f.queue},
		protocol.RolloutWorkflow, protocol.RolloutInput{Generation: 1})
	require.NoError(f.t, err)
	return run
}

// next waits for the next batch.
func (f *workers) next() batch {
	f.t.Helper()
	select {
	case running := <-f.pods.batches:
		return running
	case <-time.After(timeout):
		require.Fail(f.t, "no build took up the next batch")
		return batch{}
	}
}

func (f *workers) history(run client.WorkflowRun) (events []*history.HistoryEvent) {
	f.t.Helper()
	all := f.client.GetWorkflowHistory(f.t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		event, err := all.Next()
		require.NoError(f.t, err)
		events = append(events, event)
	}
	return events
}

// deciders returns the builds that completed the workflow tasks of a run, in order and without consecutive
// repetitions. A failed task fails the test.
func (f *workers) deciders(run client.WorkflowRun) []string {
	f.t.Helper()
	var builds []string
	for _, event := range f.history(run) {
		assert.NotEqual(f.t, enums.EVENT_TYPE_WORKFLOW_TASK_FAILED, event.GetEventType(), event)
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			builds = append(builds, event.GetWorkflowTaskCompletedEventAttributes().GetDeploymentVersion().GetBuildId())
		}
	}
	return slices.Compact(builds)
}

func (f *workers) pollers(queue string, kind enums.TaskQueueType) *workflowservice.DescribeTaskQueueResponse {
	f.t.Helper()
	answer, err := f.client.WorkflowService().DescribeTaskQueue(f.t.Context(), &workflowservice.DescribeTaskQueueRequest{
		Namespace: client.DefaultNamespace, TaskQueue: &taskqueue.TaskQueue{Name: queue, Kind: enums.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
	})
	require.NoError(f.t, err)
	return answer
}

// follows checks that a run upgrades one pod with each build. follows makes the next build current while the
// batch of the previous build is running.
func (f *workers) follows(builds ...string) client.WorkflowRun {
	f.t.Helper()
	run := f.roll()
	for i, build := range builds {
		running := f.next()
		assert.Equal(f.t, build, running.build)
		if i+1 < len(builds) {
			f.setCurrent(builds[i+1])
		}
		close(running.release)
	}
	require.NoError(f.t, run.Get(f.t.Context(), nil))
	assert.Equal(f.t, builds, f.deciders(run))
	return run
}

func TestVersionsOfWorkers(t *testing.T) {
	server := startTemporal(t)

	t.Run("a run continues with the current build, forwards and back", func(t *testing.T) {
		builds := []string{"one", "two", "one"}
		f := newWorkers(t, server, "upgrade", len(builds))
		f.host("one")
		f.host("two")
		f.setCurrent("one")
		f.follows(builds...)
	})

	t.Run("a run changes from workers without versions, and back", func(t *testing.T) {
		builds := []string{"", "one", ""}
		f := newWorkers(t, server, "switch", len(builds))
		f.host("")
		f.host("one")
		f.follows(builds...)
	})

	t.Run("a pinned run stays with its build", func(t *testing.T) {
		f := newWorkers(t, server, "pin", 2)
		f.behavior = Pinned
		f.host("one")
		f.host("two")
		f.setCurrent("one")
		run := f.roll()
		first := f.next()
		f.setCurrent("two")
		close(first.release)
		second := f.next()
		assert.Equal(t, "one", second.build)
		close(second.release)
		require.NoError(t, run.Get(t.Context(), nil))
		assert.Equal(t, []string{"one"}, f.deciders(run))
	})

	// The operator describes the task queues if no worker responds for a run.
	t.Run("a run waits for a current version, which its task queues show", func(t *testing.T) {
		f := newWorkers(t, server, "wait", 1)
		queues := map[string]enums.TaskQueueType{f.queue: enums.TASK_QUEUE_TYPE_WORKFLOW, protocol.WriteTaskQueue(f.queue): enums.TASK_QUEUE_TYPE_ACTIVITY}
		run := f.roll()
		f.host("one")
		for queue, kind := range queues {
			f.await("pollers of "+queue, func(context.Context) bool { return len(f.pollers(queue, kind).GetPollers()) > 0 })
			seen := f.pollers(queue, kind)
			assert.Equal(t, "one", seen.GetPollers()[0].GetDeploymentOptions().GetBuildId())
			assert.Nil(t, seen.GetVersioningInfo().GetCurrentDeploymentVersion())
		}
		f.setCurrent("one")
		for queue, kind := range queues {
			f.await("the current version of "+queue, func(context.Context) bool {
				return f.pollers(queue, kind).GetVersioningInfo().GetCurrentDeploymentVersion().GetBuildId() == "one"
			})
		}
		running := f.next()
		assert.Equal(t, "one", running.build)
		close(running.release)
		require.NoError(t, run.Get(t.Context(), nil))
		assert.Equal(t, []string{"one"}, f.deciders(run))
	})
}
