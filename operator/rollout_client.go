package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

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
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/tracing"
)

// callTimeout bounds each call to Temporal.
const callTimeout = 3 * time.Second

// rolloutClient starts, signals and describes rollouts in Temporal, and records whether
// Temporal is available.
type rolloutClient struct {
	client    sdk.Client
	converter converter.DataConverter
	address   string
	namespace string
	identity  string
	taskQueue string
	ui        string
	log       logr.Logger
	metrics   *metrics
	clock     clock.Clock
	tracer    trace.Tracer
	// changes gets an event when the result of awaitProbe changes.
	changes chan event.GenericEvent
	// reconnected gets a value each time that Temporal answers again.
	reconnected chan struct{}
	// probed is closed after the first probe.
	probed     chan struct{}
	probedOnce sync.Once
	// probeNow triggers the next probe.
	probeNow chan struct{}

	mu sync.Mutex
	// unreachableErr is set while Temporal does not answer; refusedErr while it answers
	// and has refused the newest start of a rollout.
	unreachableErr, refusedErr error
	refusedAt                  time.Time
	throttle                   throttle
	// attributesEnsured is set once the search attributes are registered, or cannot be.
	attributesEnsured bool
	queues            queues
}

func newRolloutClient(client sdk.Client, o Options, taskQueue string, metrics *metrics, clock clock.Clock) *rolloutClient {
	return &rolloutClient{
		client:      client,
		converter:   o.Temporal.Codec.DataConverter(),
		address:     o.Temporal.Address,
		namespace:   o.Temporal.Namespace,
		identity:    cmp.Or(o.Temporal.Identity, name),
		taskQueue:   taskQueue,
		ui:          o.TemporalUI,
		log:         o.Logger.WithName("rollouts"),
		metrics:     metrics,
		clock:       clock,
		tracer:      o.Temporal.SpanTracer(),
		changes:     make(chan event.GenericEvent, 1),
		reconnected: make(chan struct{}, 1),
		probed:      make(chan struct{}),
		probeNow:    make(chan struct{}, 1),
	}
}

// startOrSignal has Temporal roll out a generation. With no run of the set
// open it starts one, held if hold says so; an open run of an older generation
// moves on to this one; one of the same generation plans again. It returns the run's id.
//
// The trace of the edit that made the generation goes on here, and the run carries it on.
func (c *rolloutClient) startOrSignal(ctx context.Context, set protocol.SetReference, generation int64, hold *v1alpha1.RolloutHold) (runID string, err error) {
	// Whoever admitted the edit exports its span. Here it is begun to be the parent of
	// others, as sampled as there, and never ended.
	ctx, _ = c.tracer.Start(tracing.WithEdit(ctx, string(set.UID), generation), tracing.EditSpan)
	ctx, span := c.tracer.Start(ctx, "StartRollout", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("outrigger.sidecarset", set.Name), attribute.Int64("outrigger.generation", generation)))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, "Temporal has not taken the generation")
		}
		span.End()
	}()
	request, err := c.startRequest(set, generation, hold)
	if err == nil {
		request.Header, err = temporal.TraceHeader(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("start the rollout of generation %d of SidecarSet %s: %w", generation, set.Name, err)
	}
	start := func(short context.Context) error {
		run, err := c.client.WorkflowService().SignalWithStartWorkflowExecution(short, request)
		runID = run.GetRunId()
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
		c.update(func() { c.refusedErr = nil })
		return runID, nil
	}
	if ctx.Err() == nil && !isUnreachable(err) && !isThrottle(err) {
		c.update(func() { c.refusedErr, c.refusedAt = c.refusedError(err), c.clock.Now() })
	}
	return "", fmt.Errorf("start the rollout of generation %d of SidecarSet %s: %w", generation, set.Name, err)
}

func (c *rolloutClient) startRequest(set protocol.SetReference, generation int64, hold *v1alpha1.RolloutHold) (*workflowservice.SignalWithStartWorkflowExecutionRequest, error) {
	input := protocol.RolloutInput{SidecarSet: set, Generation: generation}
	phase := protocol.PhaseProgressing
	var memo *common.Memo
	if hold != nil {
		input.Hold, phase = &protocol.Hold{Who: hold.Who, Why: hold.Why}, protocol.PhasePaused
		payload, err := c.converter.ToPayload(input.Hold)
		if err != nil {
			return nil, fmt.Errorf("encode the hold: %w", err)
		}
		// Nobody may see the run without it before the run's first task.
		memo = &common.Memo{Fields: map[string]*common.Payload{protocol.HoldMemo: payload}}
	}
	arguments, err := c.converter.ToPayloads(input)
	if err != nil {
		return nil, fmt.Errorf("encode the input: %w", err)
	}
	signal, err := c.converter.ToPayloads(protocol.GenerationInput{Generation: generation})
	if err != nil {
		return nil, fmt.Errorf("encode the signal: %w", err)
	}
	attributes, err := attributesOf(set.Name, generation, phase)
	if err != nil {
		return nil, err
	}
	summary, err := c.converter.ToPayload("Rollout of SidecarSet " + set.Name)
	if err != nil {
		return nil, fmt.Errorf("encode the summary: %w", err)
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

// signal signals the open run of a set, and reports whether there is one. It never
// starts one.
func (c *rolloutClient) signal(ctx context.Context, set protocol.SetReference, signal string, payload any) (delivered bool, err error) {
	input, err := c.converter.ToPayloads(payload)
	if err != nil {
		return false, fmt.Errorf("encode signal %s: %w", signal, err)
	}
	err = c.call(ctx, "SignalWorkflowExecution", func(short context.Context) error {
		_, err := c.client.WorkflowService().SignalWorkflowExecution(short, &workflowservice.SignalWorkflowExecutionRequest{
			Namespace:         c.namespace,
			WorkflowExecution: &common.WorkflowExecution{WorkflowId: protocol.WorkflowID(set.Name, set.UID)},
			SignalName:        signal,
			Input:             input,
			Identity:          c.identity,
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
	found, err := readRun(c.converter, description.GetWorkflowExecutionInfo())
	if err != nil {
		return nil, fmt.Errorf("read the run of SidecarSet %s: %w", set.Name, err)
	}
	found.task, found.activities = description.GetPendingWorkflowTask(), description.GetPendingActivities()
	for _, activity := range found.activities {
		converter.DecodeCommonFailureAttributes(c.converter, activity.GetLastFailure())
	}
	return found, nil
}

// call makes one call to Temporal, unless that throttles. It bypasses the SDK's own
// retries: they would go on against a throttling server until the deadline, and then
// return nothing but the deadline.
func (c *rolloutClient) call(ctx context.Context, operation string, do func(context.Context) error) error {
	if left := c.throttled(); left > 0 {
		return notCalledError{left}
	}
	return c.callNow(ctx, operation, do)
}

func (c *rolloutClient) callNow(ctx context.Context, operation string, do func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := do(short)
	c.metrics.temporalCalls.WithLabelValues(operation, resultOf(err)).Inc()
	if ctx.Err() == nil {
		c.recordAnswer(err)
	}
	return err
}

// url returns the address of a workflow in the web UI; empty without a UI.
func (c *rolloutClient) url(workflowID string) string {
	if c.ui == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimSuffix(c.ui, "/"), url.PathEscape(c.namespace), url.PathEscape(workflowID))
}
