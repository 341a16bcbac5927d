// Package fleet contains the activities of a member of a fleet, and its reports (SPEC §12.5). A member gives
// permits to the runs of its own cluster, and returns the results of the rollouts to the fleet. A member
// opens connections to the fleet, and accepts no connections.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// pollInterval is the time between two reads of a run, and callTimeout the longest time of a call.
	pollInterval = time.Second
	callTimeout  = 10 * time.Second
	// wantedInterval is the time between two reads of the rollout in the fleet, while the fleet does not roll
	// the content out.
	wantedInterval = 30 * time.Second
	// maxClockSkew is the maximum difference between the clocks of the worker and of Temporal. With a larger
	// difference, the run may reject requests as late.
	maxClockSkew = time.Minute
	// signalInterval is the time between two signals that begin the same rollback.
	signalInterval = 10 * time.Second
	// recordTimeout is the longest time that the member waits until status records the end of a completed
	// rollout. Later content that fails is rolled back to the revision that status records.
	recordTimeout = time.Minute
	// byFleet is the name of the user in requests of the fleet.
	byFleet = "the fleet"
)

// Member executes the part of one cluster in the rollouts of a fleet.
type Member struct {
	// Live reads from the API server.
	Live client.Reader
	// Writer writes the RolloutFreeze of the fleet.
	Writer client.Writer
	// Local is the client of the Temporal of the cluster, and TaskQueue the task queue of the runs of the
	// cluster. Fleet is the client of the Temporal of the fleet.
	Local, Fleet sdk.Client
	TaskQueue    string
	Clock        clock.WithTicker

	// unanswered contains the names of the SidecarSets with an activity that ended without a result. The
	// fleet may have skipped the cluster for these SidecarSets.
	unanswered sync.Map
}

// Plan reads the policy of a SidecarSet and the members of the fleet from the registry.
func (m *Member) Plan(ctx context.Context, set string) (protocol.FleetPlan, error) {
	registry, err := temporal.FleetRegistry(ctx, m.Fleet)
	if err != nil {
		return protocol.FleetPlan{}, err
	}
	if len(registry.Policies) == 0 {
		return protocol.FleetPlan{}, errors.New("the fleet has no FleetPolicy; apply one with outrigger fleet apply")
	}
	return fleet.PlanOf(set, &registry), nil
}

// heartbeat is the detail of the heartbeats of an activity of a member.
type heartbeat struct {
	// Failure is the error of the last check.
	Failure string `json:"failure,omitempty"`
	// HadContent is set once the cluster has had the content, also during an earlier attempt of the activity.
	HadContent bool `json:"hadContent,omitempty"`
	// Began is the start of the first attempt of the activity.
	Began time.Time `json:"began,omitzero"`
}

// Rollout permits the content of a SidecarSet, and waits until the rollout has completed or failed, or until
// the cluster has other content. If the cluster does not get the content within input.Within, the result is
// ClusterSkipped.
func (m *Member) Rollout(ctx context.Context, input protocol.FleetRolloutInput) (protocol.FleetResult, error) {
	ended, unwanted := time.Time{}, time.Time{}
	var beat heartbeat
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &beat) // The heartbeat of an earlier release is only a text.
	}
	if beat.Began.IsZero() {
		beat.Began = m.Clock.Now()
	}
	return m.poll(ctx, input.Set, &beat, func() (result protocol.FleetResult, err error) {
		local, err := m.read(ctx, input.Set)
		switch {
		case err != nil:
			return result, err
		case local.hash() == input.Permit.Hash:
			beat.HadContent = true
			local.beat = beat
			if m.Clock.Since(unwanted) < wantedInterval {
				return result, nil
			}
			result, err = m.advance(ctx, local, input.Permit)
			if errors.Is(err, errUnwanted) {
				unwanted = m.Clock.Now()
				return result, nil
			}
			if result.State != protocol.ClusterCompleted || local.recorded() {
				return result, err
			}
			if ended.IsZero() {
				ended = m.Clock.Now()
			}
			if m.Clock.Since(ended) < recordTimeout {
				return protocol.FleetResult{}, nil
			}
			return result, err
		case beat.HadContent:
			return protocol.FleetResult{State: protocol.ClusterSuperseded, Reason: "the cluster has other content"}, nil
		case m.Clock.Since(beat.Began) >= input.Within:
			return protocol.FleetResult{State: protocol.ClusterSkipped, Reason: fmt.Sprintf("the cluster did not have the content within %s", input.Within)}, nil
		}
		return result, nil
	})
}

// advance gives the permit to the run, and returns a result once the run has ended or failed. After a retry
// of the fleet, advance first retries or resumes the run. advance sends the permit last, because the permit
// marks the retry as done.
func (m *Member) advance(ctx context.Context, local *localRun, permit protocol.Permit) (result protocol.FleetResult, err error) {
	reason, failed := local.failure()
	switch {
	case local.forgotten():
		return protocol.FleetResult{State: protocol.ClusterCompleted}, nil
	case !local.current():
		return result, nil // the operator has not started the run of the generation yet
	case failed && (local.attempt() >= permit.Attempt || permit.Attempt == 1 && local.judged()):
		return protocol.FleetResult{State: protocol.ClusterFailed, Reason: reason, Attempt: local.attempt()}, nil
	case !failed && local.ended():
		return protocol.FleetResult{State: protocol.ClusterCompleted}, nil
	case local.attempt() >= permit.Attempt && local.inconclusive():
		return result, errors.New("the rollout in the cluster waits for a promote or a resume: " + local.status.Pause.Reason)
	case local.attempt() >= permit.Attempt, local.aborting() && local.status.Stage.Aborted.By == byFleet:
		return result, nil // the run accepts a retry only after the abort has begun to roll back
	}
	if err := m.wanted(ctx, local.set.Name, permit); err != nil {
		return result, err
	}
	if err := m.restart(ctx, local, permit); err != nil {
		return result, err
	}
	permit.NotAfter = m.notAfter()
	return result, m.update(ctx, local, protocol.PermitUpdate, permit)
}

// restart retries or resumes a run that has failed, before the run gets permit. After a retry of the fleet,
// restart also resumes a run with an inconclusive gate, so that the gates run again.
func (m *Member) restart(ctx context.Context, local *localRun, permit protocol.Permit) error {
	by := protocol.Approval{By: byFleet, Reason: "the fleet retries the content"}
	_, failed := local.failure()
	switch {
	case local.quarantined():
		return m.update(ctx, local, protocol.RetryUpdate, m.request(local, by))
	case failed, local.inconclusive() && permit.Attempt > 1:
		return m.update(ctx, local, protocol.ResumeUpdate, protocol.Pause{By: by.By, Reason: by.Reason, NotAfter: m.notAfter()})
	}
	return nil
}

// errUnwanted is the error of an attempt while the fleet does not roll the content out.
var errUnwanted = errors.New("the fleet does not roll the content out")

// wanted returns errUnwanted if the fleet no longer rolls the content out. While this cluster was
// unreachable, the content may have failed in another cluster. A paused fleet does not cancel the activities
// of members.
func (m *Member) wanted(ctx context.Context, set string, permit protocol.Permit) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := temporal.FleetState(ctx, m.Fleet, set)
	if err != nil {
		return fmt.Errorf("ask the fleet whether the content of SidecarSet %s is still wanted: %w", set, err)
	}
	rolls := state.Phase == protocol.FleetRolling || state.Phase == protocol.FleetThrough
	if !rolls || state.Hash != permit.Hash || state.Attempt != permit.Attempt {
		return errUnwanted
	}
	return nil
}

// Rollback rolls the content of a SidecarSet back, and waits until the rollback has ended or failed. Rollback
// also rolls back a rollout whose run has ended.
func (m *Member) Rollback(ctx context.Context, input protocol.FleetRolloutInput) (protocol.FleetResult, error) {
	attempt := &rollback{FleetRolloutInput: input}
	attempt.Reason = protocol.Shortened(input.Reason, protocol.MaxPauseText)
	return m.poll(ctx, input.Set, &heartbeat{}, func() (result protocol.FleetResult, err error) {
		local, err := m.read(ctx, input.Set)
		if err != nil {
			return result, err
		}
		return m.rollBack(ctx, local, attempt)
	})
}

// rollback is the progress of Rollback.
type rollback struct {
	protocol.FleetRolloutInput
	// aborted is set once the run has accepted an abort. signalled is the time of the newest signal to the run.
	// pausedAt is the time of the pause of the run before the newest of these requests, if any.
	aborted   bool
	signalled time.Time
	pausedAt  time.Time
}

// endsPause reports whether the member has to resume the run because the pause is older than the quarantine.
// An abort ends a pause, but a signal with a quarantine does not. A pause that began during the rollback
// stays.
func (r *rollback) endsPause(local *localRun) bool {
	pause := local.status.Pause
	switch {
	case pause == nil || !local.quarantined():
		return false
	case r.signalled.IsZero(): // an earlier attempt sent the signal
		return pause.At.Before(local.status.Stage.Quarantine.Since)
	}
	return pause.At.Equal(r.pausedAt)
}

// failed reports whether the run has paused after the abort of the member. The run pauses if there is no
// earlier revision. A user may have replaced this pause, and another abort would end the pause of the user.
func (r *rollback) failed(local *localRun) bool {
	pause := local.status.Pause
	return r.aborted && pause != nil && !pause.At.Equal(r.pausedAt)
}

// recordPause records the time of the current pause of the run before a request, or the zero time.
func (r *rollback) recordPause(local *localRun) {
	if r.pausedAt = (time.Time{}); local.status.Pause != nil {
		r.pausedAt = local.status.Pause.At
	}
}

// rollBack makes one attempt to roll back. The result has no state until the rollback has ended or failed.
func (m *Member) rollBack(ctx context.Context, local *localRun, input *rollback) (result protocol.FleetResult, err error) {
	switch {
	case local.hash() != input.Permit.Hash:
		return protocol.FleetResult{State: protocol.ClusterSuperseded, Reason: "the cluster has other content"}, nil
	case local.forgotten():
		return m.startRollback(ctx, local, input)
	case !local.current():
		return result, nil
	case local.quarantined() && local.status.Phase == protocol.PhaseQuarantined:
		return protocol.FleetResult{State: protocol.ClusterRolledBack, Attempt: local.attempt()}, nil
	case local.aborting():
		return result, nil
	case input.endsPause(local):
		return result, m.update(ctx, local, protocol.ResumeUpdate, protocol.Pause{By: byFleet, Reason: input.Reason, NotAfter: m.notAfter()})
	case local.quarantined():
		return result, nil
	case input.failed(local):
		return protocol.FleetResult{State: protocol.ClusterFailed, Reason: local.status.Pause.Reason}, nil
	case local.ended(), local.good():
		// After an abort, an open run rolls back only content whose rollout has not ended before.
		return m.startRollback(ctx, local, input)
	}
	input.recordPause(local)
	err = m.update(ctx, local, protocol.AbortUpdate, m.request(local, protocol.Approval{By: byFleet, Reason: input.Reason}))
	input.aborted = err == nil
	return result, err
}

// startRollback rolls back content whose rollout has ended before. startRollback starts a run, or signals the
// open run. The run ignores a signal for a generation other than its own, so startRollback sends the signal
// again after signalInterval.
func (m *Member) startRollback(ctx context.Context, local *localRun, input *rollback) (result protocol.FleetResult, err error) {
	if m.Clock.Since(input.signalled) < signalInterval {
		return result, nil
	}
	target := ""
	for _, good := range local.set.Status.GoodRevisions {
		if good.Hash != local.hash() && good.ResourceVersion != "" {
			target = good.Revision
			break
		}
	}
	if target == "" {
		return protocol.FleetResult{State: protocol.ClusterFailed, Reason: "the cluster has no earlier revision whose rollout ended"}, nil
	}
	if err := m.confirm(ctx, local.beat); err != nil {
		return result, err
	}
	input.recordPause(local)
	generation := local.set.Generation
	rollback := stage.ForRollback(local.set, protocol.Quarantine{Hash: local.hash(), Revision: target, Reason: input.Reason, Since: m.Clock.Now()})
	options := sdk.StartWorkflowOptions{ID: local.id(), TaskQueue: m.TaskQueue, Memo: map[string]any{protocol.StageMemo: rollback}}
	start := protocol.RolloutInput{
		SidecarSet: protocol.SetReference{Name: local.set.Name, UID: local.set.UID}, Generation: generation, Progress: protocol.Progress{Stage: rollback},
	}
	_, err = m.Local.SignalWithStartWorkflow(ctx, local.id(), protocol.GenerationSignal,
		protocol.GenerationInput{Generation: generation, Stage: rollback}, options, protocol.RolloutWorkflow, start)
	if err != nil {
		return result, fmt.Errorf("start the rollback of SidecarSet %s: %w", local.set.Name, err)
	}
	input.signalled = m.Clock.Now()
	return result, nil
}

func (m *Member) request(local *localRun, by protocol.Approval) protocol.StepRequest {
	return protocol.StepRequest{Approval: by, Generation: local.set.Generation, Hash: local.hash(), NotAfter: m.notAfter()}
}

// notAfter returns the last time at which the run accepts a request. The time includes maxClockSkew, because
// the clocks of the worker and of Temporal may differ.
func (m *Member) notAfter() time.Time { return m.Clock.Now().Add(callTimeout + maxClockSkew) }

// confirm returns an error unless the fleet still wants the activity. While the member could not reach the
// Temporal of the fleet, the content may have failed in another cluster. beat replaces the detail of the last
// heartbeat.
func (m *Member) confirm(ctx context.Context, beat heartbeat) error {
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := m.Fleet.RecordActivityHeartbeat(calling, activity.GetInfo(ctx).TaskToken, beat); err != nil {
		return fmt.Errorf("ask the fleet whether the activity is still wanted: %w", err)
	}
	return nil
}

// update sends an update to the run, and waits for the answer of the run. update returns an error if the
// fleet no longer wants the activity, or if the run rejects the update.
func (m *Member) update(ctx context.Context, local *localRun, name string, payload any) error {
	if err := m.confirm(ctx, local.beat); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := temporal.Update(ctx, m.Local, sdk.UpdateWorkflowOptions{WorkflowID: local.id(), UpdateName: name, Args: []any{payload}}, nil); err != nil {
		return fmt.Errorf("SidecarSet %s: send %s to its run: %w", local.set.Name, name, err)
	}
	return nil
}

// errStopping is the error of an attempt whose worker stops. Another worker makes the next attempt.
var errStopping = errors.New("this worker is stopping; another worker continues")

// poll calls check until check returns a result, ctx ends, or the worker stops. An error of check is retried,
// because the API server or the Temporal of the cluster may be unavailable. poll writes the error into the
// heartbeat.
func (m *Member) poll(ctx context.Context, set string, beat *heartbeat, check func() (protocol.FleetResult, error)) (protocol.FleetResult, error) {
	ticker := m.Clock.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		result, err := check()
		if err == nil && result.State != "" {
			return result, nil
		}
		beat.Failure = ""
		if err != nil {
			beat.Failure = temporal.WithoutSecrets(err)
		}
		activity.RecordHeartbeat(ctx, *beat)
		select {
		case <-ctx.Done():
			m.unanswered.Store(set, true)
			return protocol.FleetResult{}, ctx.Err()
		case <-activity.GetWorkerStopChannel(ctx):
			m.unanswered.Store(set, true)
			return protocol.FleetResult{}, errStopping
		case <-ticker.C():
		}
	}
}
