package runs

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/tracing"
)

// newestEvents is the number of events of a run that are read to find the newest batch.
const newestEvents = 50

// Client starts, signals and describes runs.
type Client struct {
	*connection
	*prober
	diagnoser
	converter converter.DataConverter
	identity  string
	ui        string
	tracer    trace.Tracer
	// evictions contains the diagnosis of each run of evictions, by workflow id.
	evictions map[string]*diagnosis
}

// Options are the options of a Client.
type Options struct {
	Temporal temporal.Options
	// Name is the identity of the client unless Temporal.Identity is set.
	Name string
	// TaskQueue is the task queue of the runs.
	TaskQueue string
	// UI is the URL of the web UI, for links. If UI is empty, there are no links.
	UI     string
	Logger logr.Logger
	Clock  clock.Clock
}

// NewClient returns a Client. The method AwaitProbe blocks until Start has probed Temporal for
// the first time.
func NewClient(client sdk.Client, o Options, metrics *Metrics) *Client {
	calls := newConnection(client, o, metrics)
	return &Client{
		connection: calls,
		prober:     &prober{connection: calls},
		diagnoser:  diagnoser{connection: calls, taskQueue: o.TaskQueue, queues: map[queueKey]taskQueue{}},
		converter:  o.Temporal.Codec.DataConverter(),
		identity:   cmp.Or(o.Temporal.Identity, o.Name),
		ui:         o.UI,
		tracer:     o.Temporal.SpanTracer(),
		evictions:  map[string]*diagnosis{},
	}
}

// Start is the input of StartOrSignal.
type Start struct {
	SidecarSet protocol.SetReference
	Generation protocol.GenerationInput
	// Pause is the pause of a new run, or nil. Stage is the position within the steps of a RolloutPolicy from
	// which a new run, or an open run of another generation, continues. Resumed is the resume that ended the
	// pause in status.
	Pause   *v1alpha1.RolloutPause
	Resumed *protocol.Pause
	Stage   *protocol.Stage
}

// StartOrSignal starts the rollout of a generation. If the SidecarSet has no open run, StartOrSignal starts
// a run, which is paused if start.Pause is set. Otherwise, StartOrSignal signals the open run. A run of an
// older generation then continues with the new generation. A run of the same generation plans again.
// StartOrSignal returns the id of the run. If Temporal rejects the start for a reason that does not apply
// to other SidecarSets, StartOrSignal returns a RejectedError.
//
// The call and the run belong to the trace of the edit that created the generation.
func (c *Client) StartOrSignal(ctx context.Context, start Start) (runID string, err error) {
	set, generation := start.SidecarSet, start.Generation
	// The webhook exports the span of the edit. tracer.Start returns a span with the same ids and the same
	// sampling decision. This span only serves as the parent, and is never ended.
	ctx, _ = c.tracer.Start(tracing.WithEdit(ctx, string(set.UID), generation.Generation), tracing.EditSpan)
	ctx, span := c.tracer.Start(ctx, "StartRollout", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("outrigger.sidecarset", set.Name), attribute.Int64("outrigger.generation", generation.Generation)))
	defer func() {
		if err != nil {
			err = fmt.Errorf("start the rollout of generation %d of SidecarSet %s: %w", generation.Generation, set.Name, err)
			span.SetStatus(codes.Error, "Temporal has not accepted the generation")
		}
		span.End()
	}()
	request, err := c.startRequest(start)
	if err != nil {
		return "", err
	}
	if request.Header, err = temporal.TraceHeader(ctx); err != nil {
		return "", err
	}
	send := func() (*workflowservice.SignalWithStartWorkflowExecutionResponse, error) {
		return call(ctx, c.connection, "SignalWithStartWorkflowExecution", c.client.WorkflowService().SignalWithStartWorkflowExecution, request)
	}
	run, err := send()
	if isUnknownAttribute(err) && c.registerAttributes(ctx) == nil {
		// The search attributes were missing in Temporal. After the registration, the start is retried.
		run, err = send()
	}
	c.metrics.starts.WithLabelValues(resultOf(err)).Inc()
	switch {
	case ctx.Err() != nil, temporal.IsUnreachable(err), IsThrottled(err), IsBusy(err):
	case concernsOneRun(err):
		err = RejectedError{c.address, err}
	default:
		c.recordStart(err)
	}
	return run.GetRunId(), err
}

// Signal sends a signal to the open run of a SidecarSet, and reports whether there is an open run. Signal
// never starts a run.
func (c *Client) Signal(ctx context.Context, set protocol.SetReference, signal string, payload any) (delivered bool, err error) {
	input, err := c.converter.ToPayloads(payload)
	if err != nil {
		return false, fmt.Errorf("encode signal %s: %w", signal, err)
	}
	if delivered, err = c.signal(ctx, execution(set), signal, input); err != nil {
		return false, fmt.Errorf("send signal %s to the run of SidecarSet %s: %w", signal, set.Name, err)
	}
	return delivered, nil
}

// signal sends a signal to an open run of a workflow, and reports whether there is an open run.
func (c *Client) signal(ctx context.Context, to *common.WorkflowExecution, signal string, input *common.Payloads) (delivered bool, err error) {
	return c.signalOnce(ctx, to, signal, input, string(uuid.NewUUID()))
}

// signalOnce sends a signal, unless the run has received a signal with the same request id.
func (c *Client) signalOnce(ctx context.Context, to *common.WorkflowExecution, signal string, input *common.Payloads, requestID string) (delivered bool, err error) {
	_, err = call(ctx, c.connection, "SignalWorkflowExecution", c.client.WorkflowService().SignalWorkflowExecution, &workflowservice.SignalWorkflowExecutionRequest{
		Namespace: c.namespace, WorkflowExecution: to, SignalName: signal, Input: input, Identity: c.identity, RequestId: requestID,
	})
	if is[*serviceerror.NotFound](err) {
		return false, nil
	}
	return err == nil, err
}

// NewestRun returns the description of the newest run of a SidecarSet. If there is no run, NewestRun
// returns an empty Run.
func (c *Client) NewestRun(ctx context.Context, set protocol.SetReference) (*Run, error) {
	description, err := call(ctx, c.connection, "DescribeWorkflowExecution", c.client.WorkflowService().DescribeWorkflowExecution,
		&workflowservice.DescribeWorkflowExecutionRequest{Namespace: c.namespace, Execution: execution(set)})
	if is[*serviceerror.NotFound](err) {
		return &Run{}, nil
	}
	if concernsOneRun(err) {
		err = RejectedError{c.address, err}
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the run of SidecarSet %s: %w", set.Name, err)
	}
	found, err := Read(c.converter, description.GetWorkflowExecutionInfo())
	if err != nil {
		return nil, fmt.Errorf("read the run of SidecarSet %s: %w", set.Name, err)
	}
	c.addPending(found, description)
	return found, nil
}

// addPending adds the pending tasks of description to r.
func (c *Client) addPending(r *Run, description *workflowservice.DescribeWorkflowExecutionResponse) {
	r.Task, r.Activities = description.GetPendingWorkflowTask(), description.GetPendingActivities()
	for _, activity := range r.Activities {
		converter.DecodeCommonFailureAttributes(c.converter, activity.GetLastFailure())
	}
}

// RejectedWrites returns a fault if all writes of the newest batch in the history of a run were
// rejected.
func (c *Client) RejectedWrites(ctx context.Context, set protocol.SetReference) (Fault, error) {
	answer, err := call(ctx, c.connection, "GetWorkflowExecutionHistoryReverse", c.client.WorkflowService().GetWorkflowExecutionHistoryReverse,
		&workflowservice.GetWorkflowExecutionHistoryReverseRequest{Namespace: c.namespace, MaximumPageSize: newestEvents, Execution: execution(set)})
	if err != nil {
		return Fault{}, fmt.Errorf("read the history of the run of SidecarSet %s: %w", set.Name, err)
	}
	return faultOfWrites(c.converter, answer.GetHistory().GetEvents()), nil
}

// URL returns the URL of a workflow in the web UI, or "" if there is no web UI.
func (c *Client) URL(workflowID string) string {
	if c.ui == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimSuffix(c.ui, "/"), url.PathEscape(c.namespace), url.PathEscape(workflowID))
}

func execution(set protocol.SetReference) *common.WorkflowExecution {
	return &common.WorkflowExecution{WorkflowId: protocol.WorkflowID(set.Name, set.UID)}
}

// Reference returns the reference by which a run identifies its SidecarSet.
func Reference(set *v1alpha1.SidecarSet) protocol.SetReference {
	return protocol.SetReference{Name: set.Name, UID: set.UID}
}

func (c *Client) startRequest(start Start) (*workflowservice.SignalWithStartWorkflowExecutionRequest, error) {
	set, generation, pause := start.SidecarSet, start.Generation, start.Pause
	generation.Stage = start.Stage
	input := protocol.RolloutInput{SidecarSet: set, Generation: generation.Generation, Images: generation.Images, Progress: protocol.Progress{Stage: start.Stage}}
	phase := protocol.PhaseProgressing
	if pause != nil {
		input.Pause, phase = &protocol.Pause{By: pause.By, Reason: pause.Reason}, protocol.PhasePaused
	}
	memo, memoErr := c.memoOf(start.Stage, input.Pause, start.Resumed)
	arguments, inputErr := c.converter.ToPayloads(input)
	signal, signalErr := c.converter.ToPayloads(generation)
	summary, summaryErr := c.converter.ToPayload(protocol.Summary(fmt.Sprintf("%s generation %d: %s", set.Name, generation.Generation, generation.Images)))
	attributes, attributesErr := attributesOf(set.Name, generation.Generation, phase)
	if err := cmp.Or(inputErr, memoErr, signalErr, summaryErr, attributesErr); err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return &workflowservice.SignalWithStartWorkflowExecutionRequest{
		Namespace:             c.namespace,
		WorkflowId:            protocol.WorkflowID(set.Name, set.UID),
		WorkflowType:          &common.WorkflowType{Name: protocol.RolloutWorkflow},
		TaskQueue:             &taskqueue.TaskQueue{Name: c.taskQueue, Kind: enums.TASK_QUEUE_KIND_NORMAL},
		Input:                 arguments,
		Identity:              c.identity,
		RequestId:             string(uuid.NewUUID()),
		WorkflowIdReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		SignalName:            protocol.GenerationSignal,
		SignalInput:           signal,
		Memo:                  memo,
		SearchAttributes:      attributes,
		UserMetadata:          &sdkpb.UserMetadata{Summary: summary},
	}, nil
}

// memoOf returns the memo of a new run. The memo contains the pause before the first workflow task of the run,
// and the stage before the first change of the stage.
func (c *Client) memoOf(current *protocol.Stage, pause, resumed *protocol.Pause) (*common.Memo, error) {
	values := map[string]any{}
	if current != nil {
		values[protocol.StageMemo] = current
	}
	if pause != nil {
		values[protocol.PauseMemo] = pause
	} else if resumed != nil {
		values[protocol.ResumeMemo] = resumed
	}
	memo := &common.Memo{Fields: map[string]*common.Payload{}}
	for name, value := range values {
		payload, err := c.converter.ToPayload(value)
		if err != nil {
			return nil, fmt.Errorf("memo %s: %w", name, err)
		}
		memo.Fields[name] = payload
	}
	return memo, nil
}
