package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/eviction"
)

// evictionLimit limits the time of one activity of an Eviction.
const evictionLimit = 2 * time.Minute

// Eviction evicts the pods of a RolloutPolicy that cannot be upgraded in place to the newest content (SPEC §13).
// Eviction ends once the policy is gone or no longer evicts pods.
//
// The run handles the signals pause, resume and wake, and the query status. A resume also permits
// another attempt for the owners whose eviction has failed.
func Eviction(ctx workflow.Context, input protocol.EvictionInput) error {
	r := &evictionRun{input: input, signals: newSignals(ctx), wake: workflow.GetSignalChannel(ctx, protocol.WakeSignal)}
	if err := workflow.SetQueryHandler(ctx, protocol.StatusQuery, func() (protocol.EvictionView, error) { return r.input.View, nil }); err != nil {
		return fmt.Errorf("answer the query %s: %w", protocol.StatusQuery, err)
	}
	if r.input.View.PauseChanged.IsZero() {
		r.input.View.PauseChanged = workflow.GetInfo(ctx).WorkflowStartTime.UTC()
	}
	for {
		r.readSignals(ctx)
		wait, ended, err := r.step(ctx)
		if err != nil || ended {
			return err
		}
		if hasLongHistory(ctx) {
			r.readSignals(ctx)
			return workflow.NewContinueAsNewError(ctx, protocol.EvictionWorkflow, r.input)
		}
		if _, err := workflow.AwaitWithOptions(ctx, waitOptions(wait, r.input.View.Message), r.hasSignals); err != nil {
			return err
		}
	}
}

// evictionRun is the state of one run of Eviction.
type evictionRun struct {
	input   protocol.EvictionInput
	signals signals
	// wake is the channel of the signal by which the operator ends a wait early.
	wake workflow.ReceiveChannel
	// written is the view that the memo contains.
	written protocol.EvictionView
}

func (r *evictionRun) hasSignals() bool { return len(r.signals.order.names)+r.wake.Len() > 0 }

// readSignals reads every signal that has arrived. The last pause or resume takes effect.
func (r *evictionRun) readSignals(ctx workflow.Context) {
	drain[converter.RawValue](r.wake)
	names := r.signals.order.names
	r.signals.order.names = nil
	if len(names) == 0 {
		return
	}
	pauses := drainPauses(r.signals.pause)
	drainPauses(r.signals.resume)
	r.input.View.PauseChanged = workflow.Now(ctx).UTC()
	if names[len(names)-1] == protocol.PauseSignal {
		pause := pauses[len(pauses)-1].Bounded()
		pause.At = r.input.View.PauseChanged
		r.input.View.Pause = &pause
		return
	}
	s := &r.input.State
	r.input.View.Pause, s.Failed, s.Proven, s.Rejected, s.Rotations = nil, nil, nil, 0, 0
}

// step makes a plan, and evicts the pods of the plan unless the run is paused. step returns the time until
// the next step. ended reports whether the run ends.
func (r *evictionRun) step(ctx workflow.Context) (wait time.Duration, ended bool, err error) {
	var plan protocol.EvictionPlan
	options := evictionOptions(ctx, "choose pods to evict", workflow.GetInfo(ctx).TaskQueueName)
	began := workflow.Now(ctx)
	input := protocol.PlanEvictionsInput{Policy: r.input.Policy, State: r.input.State, Now: began}
	if err := workflow.ExecuteActivity(options, protocol.PlanEvictionsActivity, input).Get(ctx, &plan); err != nil {
		return 0, false, fmt.Errorf("choose pods of RolloutPolicy %s to evict: %w", r.input.Policy.Name, err)
	}
	if plan.Ended {
		r.input.View = protocol.EvictionView{Message: plan.Message, Evicted: r.input.State.Evicted}
		return 0, true, r.show(ctx)
	}
	if r.input.View.Pause != nil || len(r.signals.order.names) > 0 {
		plan.Evict = nil
	}
	result := protocol.EvictPodsResult{}
	if len(plan.Evict) > 0 {
		if result, err = r.evict(ctx, &plan); err != nil {
			return 0, false, err
		}
	}
	r.input.State, wait = eviction.Written(&plan, &result, began)
	r.view(&plan, &result)
	return wait, false, r.show(ctx)
}

func (r *evictionRun) evict(ctx workflow.Context, plan *protocol.EvictionPlan) (result protocol.EvictPodsResult, err error) {
	summary := fmt.Sprintf("evict pods of %d owners, such as %s", len(plan.Evict), plan.Evict[0].Owner)
	options := evictionOptions(ctx, summary, protocol.WriteTaskQueue(workflow.GetInfo(ctx).TaskQueueName))
	input := protocol.EvictPodsInput{Policy: r.input.Policy, Generation: plan.State.PolicyGeneration, Evictions: plan.Evict}
	if err := workflow.ExecuteActivity(options, protocol.EvictPodsActivity, input).Get(ctx, &result); err != nil {
		return result, fmt.Errorf("evict pods of RolloutPolicy %s: %w", r.input.Policy.Name, err)
	}
	return result, nil
}

// view updates the view of the run after a step.
func (r *evictionRun) view(plan *protocol.EvictionPlan, result *protocol.EvictPodsResult) {
	v := &r.input.View
	v.Message, v.Remaining, v.Overdue = plan.Message, plan.Remaining, plan.Overdue
	v.Evicted, v.Since, v.Failed = r.input.State.Evicted, r.input.State.Since, r.input.State.Failed
	// A change of Left also changes the message, so show does not compare Left.
	v.Left = plan.Left
	if n := len(result.Rejected); n > 0 {
		first := &result.Rejected[0]
		v.Message += fmt.Sprintf("; %d evictions were rejected, such as %s: %s", n, first.PodReference, first.Reason)
	}
	if v.Pause != nil {
		v.Message = v.Pause.Sentence() + "; " + v.Message
	}
}

// show writes the view to the memo and to the UI if the view has changed.
func (r *evictionRun) show(ctx workflow.Context) error {
	v := r.input.View
	unchanged := v.Message == r.written.Message && v.Evicted == r.written.Evicted && v.Overdue == r.written.Overdue &&
		v.Pause == r.written.Pause && slices.Equal(v.Failed, r.written.Failed)
	// The operator reads the time of a resume from the memo, even if the run was not paused.
	if unchanged && (v.PauseChanged.Equal(r.written.PauseChanged) ||
		workflow.GetVersion(ctx, "show every resume", workflow.DefaultVersion, 1) == workflow.DefaultVersion) {
		return nil
	}
	r.written = v
	workflow.SetCurrentDetails(ctx, v.Message)
	return writeMemo(ctx, protocol.EvictionMemo, v)
}

func evictionOptions(ctx workflow.Context, summary, taskQueue string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: taskQueue, StartToCloseTimeout: evictionLimit, HeartbeatTimeout: protocol.HeartbeatTimeout,
		Summary: summary, RetryPolicy: retryForever(),
	})
}
