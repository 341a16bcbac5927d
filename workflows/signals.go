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

func (r *run) hasSignals() bool {
	return r.signals.generation.Len()+r.signals.pause.Len()+r.signals.resume.Len() > 0
}

// readSignals takes in every signal that waits. Pauses and resumes that wait
// together have lost their order, but each is sent to change something: as
// many of the one as of the other leave the run as it was.
func (r *run) readSignals(ctx workflow.Context) {
	for _, sent := range drain[protocol.GenerationInput](r.signals.generation) {
		r.newest = max(r.newest, sent.Generation)
	}
	pauses := drain[protocol.Hold](r.signals.pause)
	resumes := drain[protocol.Hold](r.signals.resume)
	switch {
	case len(pauses) > len(resumes):
		r.hold = &pauses[len(pauses)-1]
		workflow.GetLogger(ctx).Info("Rollout paused", "who", r.hold.Who, "why", r.hold.Why)
	case len(resumes) > len(pauses):
		r.hold = nil
		last := resumes[len(resumes)-1]
		workflow.GetLogger(ctx).Info("Rollout resumed", "who", last.Who, "why", last.Why)
	}
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

// awaitResume waits, paused, until a signal comes.
func (r *run) awaitResume(ctx workflow.Context) error {
	message := "paused by signal"
	if r.hold.Who != "" {
		message += " from " + r.hold.Who
	}
	if r.hold.Why != "" {
		message += ": " + r.hold.Why
	}
	if err := r.show(ctx, protocol.PhasePaused, message); err != nil {
		return err
	}
	return r.awaitSignal(ctx)
}

// awaitSignal waits until a signal comes.
func (r *run) awaitSignal(ctx workflow.Context) error {
	return workflow.Await(ctx, r.hasSignals)
}

// awaitSignalFor waits until a signal comes or the time is over.
func (r *run) awaitSignalFor(ctx workflow.Context, rest time.Duration) error {
	_, err := workflow.AwaitWithTimeout(ctx, rest, r.hasSignals)
	return err
}
