package operator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdktemporal "go.temporal.io/sdk/temporal"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// callTimeout bounds each call to Temporal.
	callTimeout = 3 * time.Second
	// Temporal is asked how it is this often, while it answers and while not.
	probeWhileUp   = 5 * time.Second
	probeWhileDown = time.Second
)

// engine is Temporal as the operator sees it: where rollouts are handed over,
// and whether it can take them.
type engine struct {
	client    sdk.Client
	address   string
	namespace string
	taskQueue string
	ui        string
	log       logr.Logger
	meters    *meters
	// changes gets an event when err changes.
	changes chan event.GenericEvent
	// probed is closed once Temporal has been asked for the first time.
	probed     chan struct{}
	probedOnce sync.Once

	mu sync.Mutex
	// away says that Temporal does not answer; refusal, that it does and
	// refused the newest hand-over.
	away, refusal error
	refusedAt     time.Time
	// prepared is true once search attributes were seen to.
	prepared bool
}

func newEngine(client sdk.Client, o Options, taskQueue string, meters *meters) *engine {
	return &engine{
		client:    client,
		address:   o.Temporal.Address,
		namespace: o.Temporal.Namespace,
		taskQueue: taskQueue,
		ui:        o.TemporalUI,
		log:       o.Logger.WithName("engine"),
		meters:    meters,
		changes:   make(chan event.GenericEvent, 1),
		probed:    make(chan struct{}),
	}
}

// NeedLeaderElection lets standbys watch too: their metric would say otherwise
// that Temporal is away.
func (e *engine) NeedLeaderElection() bool { return false }

// Start asks Temporal from time to time whether it is there.
func (e *engine) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		e.probe(ctx)
		e.probedOnce.Do(func() { close(e.probed) })
		pause := probeWhileUp
		if e.unreachable() {
			pause = probeWhileDown
		}
		timer.Reset(pause)
	}
}

func (e *engine) probe(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := e.client.WorkflowService().DescribeNamespace(short, &workflowservice.DescribeNamespaceRequest{Namespace: e.namespace})
	if ctx.Err() != nil || e.noteAway(ctx, err) {
		return
	}
	// Whatever else it says about the namespace, a hand-over says better; and
	// that is tried again as long as there is something to hand over.
	e.note(func() {
		e.away = nil
		if time.Since(e.refusedAt) > 2*lastRetry {
			e.refusal = nil
		}
	})
	if err == nil {
		e.prepareOnce(short)
	}
}

// wait returns why Temporal takes no rollouts, nil if it does. It waits for the
// first probe, so that a restart does not claim what it cannot know.
func (e *engine) wait(ctx context.Context) error {
	select {
	case <-e.probed:
	case <-ctx.Done():
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trouble()
}

// unreachable tells whether a call would be in vain.
func (e *engine) unreachable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.away != nil
}

func (e *engine) trouble() error {
	if e.away != nil {
		return e.away
	}
	return e.refusal
}

// note changes what is known. Everybody hears of it if that changes what one
// says about Temporal.
func (e *engine) note(change func()) {
	e.mu.Lock()
	before := e.trouble()
	change()
	after := e.trouble()
	e.mu.Unlock()

	available := 1.0
	if after != nil {
		available = 0
	}
	e.meters.engineAvailable.Set(available)
	if text(before) == text(after) {
		return
	}
	if after != nil {
		e.log.Info("Temporal takes no rollouts", "cause", after.Error())
	} else {
		e.log.Info("Temporal takes rollouts again")
	}
	select {
	case e.changes <- event.GenericEvent{}:
	default: // one is waiting to be heard
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// handOver tells Temporal to roll out a generation. With no run of the set
// open it starts one; an open run of an older generation moves on to this one;
// one of the same generation goes on unchanged.
func (e *engine) handOver(ctx context.Context, set protocol.SetReference, generation int64) error {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := protocol.WorkflowID(set.Name, set.UID)
	_, err := e.client.SignalWithStartWorkflow(short, id,
		protocol.GenerationSignal, protocol.GenerationInput{Generation: generation},
		sdk.StartWorkflowOptions{
			ID:                    id,
			TaskQueue:             e.taskQueue,
			WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			StaticSummary:         "Rollout of SidecarSet " + set.Name,
			TypedSearchAttributes: sdktemporal.NewSearchAttributes(
				sdktemporal.NewSearchAttributeKeyKeyword(protocol.SidecarSetAttribute).ValueSet(set.Name),
				sdktemporal.NewSearchAttributeKeyInt64(protocol.GenerationAttribute).ValueSet(generation),
				sdktemporal.NewSearchAttributeKeyKeyword(protocol.RolloutPhaseAttribute).ValueSet(string(protocol.PhaseProgressing)),
			),
		},
		protocol.RolloutWorkflow, protocol.RolloutInput{SidecarSet: set, Generation: generation})
	if err == nil {
		e.meters.handOvers.WithLabelValues(resultOK).Inc()
		e.note(func() { e.away, e.refusal = nil, nil })
		return nil
	}
	e.meters.handOvers.WithLabelValues(resultError).Inc()
	if !e.noteAway(ctx, err) && ctx.Err() == nil {
		e.note(func() { e.refusal, e.refusedAt = e.sayRefused(err), time.Now() })
	}
	return fmt.Errorf("hand generation %d of SidecarSet %s over: %w", generation, set.Name, err)
}

// openRun tells whether a run of the set is open, and held by a signal.
func (e *engine) openRun(ctx context.Context, set protocol.SetReference) (open, held bool, err error) {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	description, err := e.client.DescribeWorkflowExecution(short, protocol.WorkflowID(set.Name, set.UID), "")
	var none *serviceerror.NotFound
	if errors.As(err, &none) {
		return false, false, nil
	}
	if err != nil {
		e.noteAway(ctx, err)
		return false, false, fmt.Errorf("ask for the run of SidecarSet %s: %w", set.Name, err)
	}
	run := description.GetWorkflowExecutionInfo()
	if run.GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return false, false, nil
	}
	var phase string
	if found, ok := run.GetSearchAttributes().GetIndexedFields()[protocol.RolloutPhaseAttribute]; ok {
		if err := converter.GetDefaultDataConverter().FromPayload(found, &phase); err != nil {
			return false, false, fmt.Errorf("read the phase of the run of SidecarSet %s: %w", set.Name, err)
		}
	}
	return true, phase == string(protocol.PhasePaused), nil
}

// noteAway tells whether a call failed because Temporal does not answer, and
// remembers it; not if it was we who gave up.
func (e *engine) noteAway(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !isAway(err) {
		return false
	}
	e.note(func() { e.away, e.prepared = e.sayAway(err), false })
	return true
}

func isAway(err error) bool {
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded)
}

// sayAway leaves the cause to the log: its words change from one attempt to
// the next, and these go into conditions.
func (e *engine) sayAway(err error) error {
	e.log.V(1).Info("no answer from Temporal", "address", e.address, "cause", err.Error())
	return fmt.Errorf("Temporal at %s does not answer", e.address) //nolint:staticcheck // a name comes first
}

func (e *engine) sayRefused(err error) error {
	remedy := "does the namespace exist, and may the operator use it?"
	if strings.Contains(err.Error(), "search attribute") || strings.Contains(err.Error(), protocol.SidecarSetAttribute) {
		remedy = attributesRemedy(e.address, e.namespace)
	}
	return fmt.Errorf("Temporal at %s, namespace %s, refuses rollouts: %w (%s)", e.address, e.namespace, err, remedy) //nolint:staticcheck // a name comes first
}

// url of a workflow in the web UI; empty without one.
func (e *engine) url(workflowID string) string {
	if e.ui == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimSuffix(e.ui, "/"), url.PathEscape(e.namespace), url.PathEscape(workflowID))
}
