package workflows

import (
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// signals are the channels through which a run receives signals from users and from the operator.
type signals struct {
	generation, pause, resume workflow.ReceiveChannel
	// order is the order of the pauses and resumes that the run has not read.
	order *pauseOrder
}

func newSignals(ctx workflow.Context) signals {
	return signals{
		generation: workflow.GetSignalChannel(ctx, protocol.GenerationSignal),
		pause:      workflow.GetSignalChannel(ctx, protocol.PauseSignal),
		resume:     workflow.GetSignalChannel(ctx, protocol.ResumeSignal),
		order:      pauseOrderOf(ctx),
	}
}

// hasSignals reports whether signals or updates have arrived that the run has not read.
func (r *run) hasSignals() bool {
	return r.updated || r.signals.generation.Len()+len(r.signals.order.names) > 0
}

// willBePaused reports whether the run is paused once the run has read the signals that have arrived.
func (r *run) willBePaused() bool {
	if names := r.signals.order.names; len(names) > 0 {
		return names[len(names)-1] == protocol.PauseSignal
	}
	return r.paused != nil
}

// readSignals reads every signal that has arrived. The last pause or resume takes effect.
func (r *run) readSignals(ctx workflow.Context) error {
	r.updated = false
	for _, sent := range drain[protocol.GenerationInput](r.signals.generation) {
		if err := r.restoreQuarantine(ctx, sent.Stage); err != nil {
			return err
		}
		// A plan contains no images, so a signal for the generation of the plan adds the images.
		if sent.Generation > r.newest.Generation || sent.Generation == r.newest.Generation && r.newest.Images == "" {
			r.newest = sent
		}
		r.woken, r.wakes = true, r.wakes+1
	}
	if r.newest.Generation == r.input.Generation {
		r.input.Images = r.newest.Images
	}
	names := r.signals.order.names
	r.signals.order.names = nil
	if len(names) == 0 {
		return nil
	}
	pauses, resumes := drainPauses(r.signals.pause), drainPauses(r.signals.resume)
	if names[len(names)-1] == protocol.PauseSignal {
		return r.pause(ctx, pauses[len(pauses)-1])
	}
	r.resumed = r.paused != nil || len(pauses) > 0
	return r.resume(ctx, resumes[len(resumes)-1])
}

// drainPauses reads one payload for each signal. For a payload that cannot be decoded, drainPauses returns a
// Pause without a name, so that the signal still takes effect.
func drainPauses(channel workflow.ReceiveChannel) []protocol.Pause {
	var all []protocol.Pause
	for _, raw := range drain[converter.RawValue](channel) {
		var pause protocol.Pause
		if raw.Payload() != nil && converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &pause) != nil {
			pause = protocol.Pause{Reason: "(a signal without name and reason)"}
		}
		all = append(all, pause)
	}
	return all
}

func drain[T any](channel workflow.ReceiveChannel) []T {
	var all []T
	for {
		var sent T
		if !channel.ReceiveAsync(&sent) {
			return all
		}
		all = append(all, sent)
	}
}

// awaitSignal waits until a signal arrives, and shows the reason in the UI. After checkInterval, the run checks
// the cluster without a signal, because the operator that sends the signal may be down.
func (r *run) awaitSignal(ctx workflow.Context, reason string) error {
	return r.awaitSignalFor(ctx, checkInterval, reason)
}

// awaitSignalFor waits until a signal arrives or the timeout has expired.
func (r *run) awaitSignalFor(ctx workflow.Context, timeout time.Duration, reason string) error {
	began := workflow.Now(ctx)
	signalled, err := workflow.AwaitWithOptions(ctx, waitOptions(timeout, reason), r.hasSignals)
	r.dropStallAfterOutage(ctx, began, timeout)
	r.woken = r.woken || !signalled
	return err
}

// sleep waits until the operator signals that pods may be upgraded, rejected pods are due for a
// retry, or checkInterval has passed. A sleeping run occupies no worker.
func (r *run) sleep(ctx workflow.Context, reason string) error {
	atMost := checkInterval
	// If rejected pods were due for a retry but could not be upgraded, the run waits for checkInterval, as for
	// other pods.
	if r.asked.Again == 0 || reason == waitRejected {
		atMost = r.rejected().left(workflow.Now(ctx), atMost)
	}
	if atMost <= 0 {
		return nil
	}
	if err := r.upsertSearchAttributes(ctx, protocol.PhaseWaiting); err != nil {
		return err
	}
	r.quiet = true
	if left, runs := r.deadlineLeft(ctx); runs {
		atMost = min(atMost, max(left, minDeadlineWait))
	}
	return r.awaitSignalFor(ctx, r.untilFailure(atMost), reason)
}
