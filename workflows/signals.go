package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

// signals are the channels that people and the operator reach a run by.
type signals struct {
	generation, pause, resume workflow.ReceiveChannel
}

func newSignals(ctx workflow.Context) signals {
	return signals{
		generation: workflow.GetSignalChannel(ctx, protocol.GenerationSignal),
		pause:      workflow.GetSignalChannel(ctx, protocol.PauseSignal),
		resume:     workflow.GetSignalChannel(ctx, protocol.ResumeSignal),
	}
}

// hasSignals reports whether a signal waits, or an update came, that the run has
// not read.
func (r *run) hasSignals() bool {
	return r.updated || r.signals.generation.Len()+r.signals.pause.Len()+r.signals.resume.Len() > 0
}

// readSignals takes in every signal that waits. Pauses and resumes that wait
// together have lost their order, but each is sent to change something: as
// many of the one as of the other leave the run as it was.
func (r *run) readSignals(ctx workflow.Context) error {
	r.updated = false
	for _, sent := range drain[protocol.GenerationInput](r.signals.generation) {
		r.newest = max(r.newest, sent.Generation)
		r.woken, r.wakes = true, r.wakes+1
	}
	pauses := drain[protocol.Hold](r.signals.pause)
	resumes := drain[protocol.Hold](r.signals.resume)
	switch {
	case len(pauses) > len(resumes):
		return r.pause(ctx, pauses[len(pauses)-1])
	case len(resumes) > len(pauses):
		return r.resume(ctx, resumes[len(resumes)-1])
	}
	return nil
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

// awaitSignal waits until a signal comes, for the reason that the UI shows. A run
// that has waited for longestSleep looks for itself: whoever should have sent one
// may be gone.
func (r *run) awaitSignal(ctx workflow.Context, reason string) error {
	if !waitsInWorkflow(ctx) {
		return workflow.Await(ctx, r.hasSignals)
	}
	return r.awaitSignalFor(ctx, longestSleep, reason)
}

// awaitSignalFor waits until a signal comes or the time is over.
func (r *run) awaitSignalFor(ctx workflow.Context, timeout time.Duration, reason string) error {
	signalled, err := workflow.AwaitWithOptions(ctx, waitOptions(timeout, reason), r.hasSignals)
	r.woken = r.woken || !signalled
	return err
}

// sleep waits for the cluster to offer work: the operator signals then. It costs
// no slot of a worker, and hardly any history.
func (r *run) sleep(ctx workflow.Context, atMost time.Duration, reason string) error {
	if !waitsInWorkflow(ctx) {
		return nil
	}
	if err := r.upsertSearchAttributes(ctx, protocol.PhaseWaiting); err != nil {
		return err
	}
	return r.awaitSignalFor(ctx, atMost, reason)
}

// waitsInWorkflow is false for runs that began when activities did the waiting.
func waitsInWorkflow(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, "wait in the workflow", workflow.DefaultVersion, 1) == 1
}
