package operator

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// firstTask is the length of a history at the end of the run's first task:
// started; task scheduled, started, completed.
const firstTask = 4

// run is the newest run of a set, as Temporal describes it.
type run struct {
	// status is unspecified if Temporal knows of no run.
	status enums.WorkflowExecutionStatus
	// generation that the run works on; zero if its search attribute is missing.
	generation int64
	phase      protocol.Phase
	// hold is read from the run's memo.
	hold *protocol.Hold
	// events is the length of its history.
	events int64
	// task is the pending workflow task, if any.
	task       *workflow.PendingWorkflowTaskInfo
	activities []*workflow.PendingActivityInfo
}

func (r *run) open() bool { return r.status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING }

// taskPending reports whether the run is about to plan by itself. A run that continued
// another as new may wait for its first task for a second, and shows until then the
// phase of that other.
func (r *run) taskPending() bool { return r.task != nil || r.events < firstTask }

// completed reports whether the run ended because it had nothing left to do, and
// not because somebody ended it.
func (r *run) completed() bool { return r.status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED }

// waitsForSignal reports whether nothing but a signal makes the run plan again.
func (r *run) waitsForSignal() bool {
	waits := r.phase == protocol.PhaseWaiting || r.phase == protocol.PhasePaused
	return r.open() && waits && !r.taskPending() && len(r.activities) == 0
}

// generationMismatch reports whether the run works on another generation than the
// set's: a signal was mistyped, or the cluster or Temporal was restored from a backup.
func (r *run) generationMismatch(set *v1alpha1.SidecarSet) bool {
	return r.generation != 0 && r.generation != set.Generation
}

// startOrSignal has Temporal roll out a generation. With no run of the set
// open it starts one, held if hold says so; an open run of an older generation
// moves on to this one; one of the same generation plans again.
func (c *rolloutClient) startOrSignal(ctx context.Context, set protocol.SetReference, generation int64, hold *v1alpha1.RolloutHold) error {
	request, err := c.startRequest(set, generation, hold)
	if err != nil {
		return fmt.Errorf("start the rollout of generation %d of SidecarSet %s: %w", generation, set.Name, err)
	}
	start := func(short context.Context) error {
		_, err := c.client.WorkflowService().SignalWithStartWorkflowExecution(short, request)
		return err
	}
	err = c.call(ctx, "SignalWithStartWorkflowExecution", start)
	if isUnknownAttribute(err) {
		// The attributes were removed since they were registered.
		if registered := c.registerAttributes(ctx); registered == nil {
			err = c.call(ctx, "SignalWithStartWorkflowExecution", start)
		}
	}
	c.metrics.rolloutStarts.WithLabelValues(resultOf(err)).Inc()
	if err == nil {
		c.note(func() { c.refusal = nil })
		return nil
	}
	if ctx.Err() == nil && !isAway(err) && !isThrottle(err) {
		c.note(func() { c.refusal, c.refusedAt = c.sayRefused(err), c.now() })
	}
	return fmt.Errorf("start the rollout of generation %d of SidecarSet %s: %w", generation, set.Name, err)
}

func (c *rolloutClient) startRequest(set protocol.SetReference, generation int64, hold *v1alpha1.RolloutHold) (*workflowservice.SignalWithStartWorkflowExecutionRequest, error) {
	input := protocol.RolloutInput{SidecarSet: set, Generation: generation}
	phase := protocol.PhaseProgressing
	var memo *common.Memo
	if hold != nil {
		input.Hold, phase = &protocol.Hold{Who: hold.Who, Why: hold.Why}, protocol.PhasePaused
		payload, err := converter.GetDefaultDataConverter().ToPayload(input.Hold)
		if err != nil {
			return nil, fmt.Errorf("encode the hold: %w", err)
		}
		// Nobody may see the run without it before the run's first task.
		memo = &common.Memo{Fields: map[string]*common.Payload{protocol.HoldMemo: payload}}
	}
	arguments, err := converter.GetDefaultDataConverter().ToPayloads(input)
	if err != nil {
		return nil, fmt.Errorf("encode the input: %w", err)
	}
	signal, err := converter.GetDefaultDataConverter().ToPayloads(protocol.GenerationInput{Generation: generation})
	if err != nil {
		return nil, fmt.Errorf("encode the signal: %w", err)
	}
	attributes, err := attributesOf(set.Name, generation, phase)
	if err != nil {
		return nil, err
	}
	summary, err := converter.GetDefaultDataConverter().ToPayload("Rollout of SidecarSet " + set.Name)
	if err != nil {
		return nil, fmt.Errorf("encode the summary: %w", err)
	}
	return &workflowservice.SignalWithStartWorkflowExecutionRequest{
		Namespace:             c.namespace,
		WorkflowId:            protocol.WorkflowID(set.Name, set.UID),
		WorkflowType:          &common.WorkflowType{Name: protocol.RolloutWorkflow},
		TaskQueue:             &taskqueue.TaskQueue{Name: c.taskQueue, Kind: enums.TASK_QUEUE_KIND_NORMAL},
		Input:                 arguments,
		Identity:              name,
		RequestId:             string(uuid.NewUUID()),
		WorkflowIdReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		SignalName:            protocol.GenerationSignal,
		SignalInput:           signal,
		Memo:                  memo,
		SearchAttributes:      attributes,
		UserMetadata:          &sdkpb.UserMetadata{Summary: summary},
	}, nil
}

// signal signals the open run of a set, and reports whether there is one. It never
// starts one.
func (c *rolloutClient) signal(ctx context.Context, set protocol.SetReference, signal string, payload any) (delivered bool, err error) {
	input, err := converter.GetDefaultDataConverter().ToPayloads(payload)
	if err != nil {
		return false, fmt.Errorf("encode signal %s: %w", signal, err)
	}
	err = c.call(ctx, "SignalWorkflowExecution", func(short context.Context) error {
		_, err := c.client.WorkflowService().SignalWorkflowExecution(short, &workflowservice.SignalWorkflowExecutionRequest{
			Namespace:         c.namespace,
			WorkflowExecution: &common.WorkflowExecution{WorkflowId: protocol.WorkflowID(set.Name, set.UID)},
			SignalName:        signal,
			Input:             input,
			Identity:          name,
			RequestId:         string(uuid.NewUUID()),
		})
		return err
	})
	var none *serviceerror.NotFound
	if errors.As(err, &none) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("send signal %s to the run of SidecarSet %s: %w", signal, set.Name, err)
	}
	return true, nil
}

// newestRun describes the newest run of a set.
func (c *rolloutClient) newestRun(ctx context.Context, set protocol.SetReference) (*run, error) {
	var description *workflowservice.DescribeWorkflowExecutionResponse
	err := c.call(ctx, "DescribeWorkflowExecution", func(short context.Context) (err error) {
		description, err = c.client.WorkflowService().DescribeWorkflowExecution(short, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: c.namespace,
			Execution: &common.WorkflowExecution{WorkflowId: protocol.WorkflowID(set.Name, set.UID)},
		})
		return err
	})
	var none *serviceerror.NotFound
	if errors.As(err, &none) {
		return &run{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the run of SidecarSet %s: %w", set.Name, err)
	}
	found, err := readRun(description.GetWorkflowExecutionInfo())
	if err != nil {
		return nil, fmt.Errorf("read the run of SidecarSet %s: %w", set.Name, err)
	}
	found.task, found.activities = description.GetPendingWorkflowTask(), description.GetPendingActivities()
	return found, nil
}

func readRun(info *workflow.WorkflowExecutionInfo) (*run, error) {
	r := &run{status: info.GetStatus(), events: info.GetHistoryLength()}
	fields := info.GetSearchAttributes().GetIndexedFields()
	if err := decode(fields[protocol.RolloutPhaseAttribute], &r.phase); err != nil {
		return nil, fmt.Errorf("search attribute %s: %w", protocol.RolloutPhaseAttribute, err)
	}
	if err := decode(fields[protocol.GenerationAttribute], &r.generation); err != nil {
		return nil, fmt.Errorf("search attribute %s: %w", protocol.GenerationAttribute, err)
	}
	if err := decode(info.GetMemo().GetFields()[protocol.HoldMemo], &r.hold); err != nil {
		return nil, fmt.Errorf("memo %s: %w", protocol.HoldMemo, err)
	}
	return r, nil
}

// decode leaves into as it is when there is nothing to decode.
func decode(payload *common.Payload, into any) error {
	if payload == nil {
		return nil
	}
	return converter.GetDefaultDataConverter().FromPayload(payload, into)
}
