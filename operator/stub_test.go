package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// work starts the worker, without a version.
func (e *testEnv) work(t *testing.T) {
	t.Helper()
	e.workAs(t, "")
}

// workAs starts the worker as a build of its deployment. An empty build starts an unversioned
// worker.
func (e *testEnv) workAs(t *testing.T, build string) {
	t.Helper()
	options := worker.Options{WorkerStopTimeout: time.Second}
	if build != "" {
		options.DeploymentOptions = worker.DeploymentOptions{
			UseVersioning: true, Version: worker.WorkerDeploymentVersion{DeploymentName: stubDeployment, BuildID: build},
			DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		}
	}
	e.worker = worker.New(e.temporal, e.taskQueue, options)
	e.worker.RegisterWorkflowWithOptions(stubRollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	e.worker.RegisterActivityWithOptions(stubActivity, activity.RegisterOptions{Name: protocol.NextBatchActivity})
	e.worker.RegisterActivityWithOptions(stubBatch, activity.RegisterOptions{Name: protocol.UpgradeBatchActivity})
	require.NoError(t, e.worker.Start())
}

// setCurrent waits until the server has registered a build, and makes the build current. An empty build
// selects unversioned workers.
func (e *testEnv) setCurrent(t *testing.T, build string) {
	t.Helper()
	deployment := e.temporal.WorkerDeploymentClient().GetHandle(stubDeployment)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := deployment.SetCurrentVersion(t.Context(), sdk.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		require.NoError(c, err)
	}, soon, tick)
}

const stubDeployment = "stubs"

// The name of a SidecarSet determines the behavior of its run.
const (
	sleeps  = "sleepy"    // sleeps until a signal
	fails3  = "failing"   // has an activity that fails until the run is signalled
	panics  = "looping"   // has a workflow task that fails
	rejects = "unwritten" // reports that all writes of a batch were rejected
	leaving = "leaving"   // ends after three signals
	sealed  = "sealed"    // encrypts its memo
	resumes = "resuming"  // ends after a resume
	pauses  = "pausing-"  // ends after a pause
	suspend = "suspended" // is paused by the spec in generation 2
)

// stubRollout is a workflow that writes the memo and the search attributes that the operator reads, and
// upgrades no pods.
func stubRollout(ctx workflow.Context, input protocol.RolloutInput) error {
	stub := &stubRun{input: input, pause: input.Pause, is: func(kind string) bool { return strings.HasPrefix(input.SidecarSet.Name, kind) }}
	if err := stub.show(ctx); err != nil {
		return err
	}
	if stub.is(panics) {
		panic("code that does not fit")
	}
	if stub.is(fails3) {
		// As in production, the timeout is short, so an attempt on a stopped worker times out within seconds.
		failing := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 5 * time.Second,
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1}})
		workflow.Go(ctx, func(workflow.Context) {
			workflow.ExecuteActivity(failing, protocol.NextBatchActivity)
		})
	}
	if stub.is(rejects) {
		once := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		if err := workflow.ExecuteActivity(once, protocol.UpgradeBatchActivity).Get(ctx, nil); err != nil {
			return err
		}
	}
	return stub.listen(ctx)
}

func stubBatch(context.Context) (protocol.UpgradeBatchResult, error) {
	return protocol.UpgradeBatchResult{Rejected: []protocol.RejectedPod{
		{PodReference: protocol.PodReference{Namespace: "default", Name: "unwritten-1"}, Reason: "pods is forbidden"}}}, nil
}

func stubActivity(context.Context) error {
	return errors.New("sidecarsets.apps.kruise.io is\nforbidden")
}

type stubRun struct {
	input protocol.RolloutInput
	pause *protocol.Pause
	// resumed is the resume that ended the last pause.
	resumed *protocol.Pause
	is      func(string) bool
	looked  int
}

func (s *stubRun) show(ctx workflow.Context) error {
	phase := protocol.PhaseProgressing
	switch {
	case s.pause != nil:
		phase = protocol.PhasePaused
	case s.is(suspend) && s.input.Generation == 2:
		phase = protocol.PhasePaused
	case s.is(sleeps):
		phase = protocol.PhaseWaiting
	}
	err := workflow.UpsertTypedSearchAttributes(ctx,
		temporal.NewSearchAttributeKeyKeyword(protocol.RolloutPhaseAttribute).ValueSet(string(phase)),
		temporal.NewSearchAttributeKeyInt64(protocol.GenerationAttribute).ValueSet(s.input.Generation))
	if err != nil {
		return err
	}
	// As in production, a run that continues as new keeps the memo of a resume.
	memo := map[string]any{protocol.PauseMemo: nil}
	if s.pause != nil {
		memo[protocol.PauseMemo], memo[protocol.ResumeMemo] = s.pause, nil
		if s.is(sealed) {
			memo[protocol.PauseMemo] = converter.NewRawValue(&common.Payload{
				Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/encrypted")}, Data: []byte("sealed")})
		}
	} else if s.resumed != nil {
		memo[protocol.ResumeMemo] = s.resumed
	}
	return workflow.UpsertMemo(ctx, memo)
}

func (s *stubRun) listen(ctx workflow.Context) error {
	var next *protocol.RolloutInput
	var ended bool
	selector := workflow.NewSelector(ctx)
	selector.AddReceive(workflow.GetSignalChannel(ctx, protocol.GenerationSignal), func(c workflow.ReceiveChannel, _ bool) {
		var sent protocol.GenerationInput
		c.Receive(ctx, &sent)
		s.looked++
		ended = s.is(leaving) && s.looked == 3
		if sent.Generation != s.input.Generation {
			next = &protocol.RolloutInput{SidecarSet: s.input.SidecarSet, Generation: sent.Generation}
		}
	})
	selector.AddReceive(workflow.GetSignalChannel(ctx, protocol.PauseSignal), func(c workflow.ReceiveChannel, _ bool) {
		s.pause = &protocol.Pause{}
		c.Receive(ctx, s.pause)
		ended = s.is(pauses)
	})
	selector.AddReceive(workflow.GetSignalChannel(ctx, protocol.ResumeSignal), func(c workflow.ReceiveChannel, _ bool) {
		s.pause, s.resumed = nil, &protocol.Pause{}
		c.Receive(ctx, s.resumed)
		ended = s.is(resumes)
	})
	// If the run continued as new before the signals are read, the signals would be lost.
	for !ended && (next == nil || selector.HasPending()) {
		selector.Select(ctx)
		if err := s.show(ctx); err != nil {
			return err
		}
	}
	if ended {
		return nil
	}
	next.Pause = s.pause
	return workflow.NewContinueAsNewError(ctx, protocol.RolloutWorkflow, *next)
}
