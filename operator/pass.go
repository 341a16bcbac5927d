package operator

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
)

// pass is the state of one reconcile of a SidecarSet. Each step of the reconcile adds results to the pass.
type pass struct {
	// before is the SidecarSet at the start of the reconcile. The steps write the status of set.
	// The content of both objects is completed with defaults.
	before, set *v1alpha1.SidecarSet
	pods        []*corev1.Pod
	now         time.Time
	// former is the cached revision that status.latestRevision named at the start of the pass, or nil.
	former *appsv1.ControllerRevision
	// target is the cached revision to which the rollout is rolled back, or nil.
	target *appsv1.ControllerRevision
	// revisionsErr contains the errors of writes of revisions other than the newest revision.
	revisionsErr error
	// quarantine is the quarantine of the content at the start of the pass, or nil.
	quarantine *v1alpha1.RolloutQuarantine
	observation
	// state is the state of the run that is kept from one pass to the next.
	state *runState
	// run is the newest run, or nil before a step has read the run.
	run *runs.Run
	out outcome

	// result is the result of the reconcile. Once ended is set, no further step is executed.
	result reconcile.Result
	ended  bool
}

// end ends the pass, and requeues the SidecarSet after the given time.
func (p *pass) end(requeueAfter time.Duration) {
	p.ended, p.result.RequeueAfter = true, requeueAfter
}

// requeue returns the result of the pass. The result requeues the SidecarSet no later than the end of a
// freeze or of a bake time.
func (p *pass) requeue() reconcile.Result {
	if p.frozen() && p.frozenUntil != nil {
		p.requeueAt(*p.frozenUntil)
	}
	if p.plan.Phase == protocol.PhaseStepReached && p.set != nil {
		s := stage.OfStatus(p.set)
		if phase, _ := s.Wait(p.now); phase == protocol.PhaseBaking {
			p.requeueAt(s.BakeEnd())
		}
	}
	return p.result
}

// requeueAt requeues the SidecarSet at the given time, unless the pass requeues the SidecarSet earlier.
func (p *pass) requeueAt(at time.Time) {
	left := max(at.Sub(p.now), time.Millisecond)
	if p.result.RequeueAfter == 0 || left < p.result.RequeueAfter {
		p.result.RequeueAfter = left
	}
}

// generation returns the generation of the SidecarSet and the changed images, as the input of a run.
func (p *pass) generation() protocol.GenerationInput {
	images := strings.Join(changedImages(&p.set.Spec, p.former), ", ")
	return protocol.GenerationInput{Generation: p.set.Generation, Images: protocol.Summary(images)}
}

// start returns the request to start or to signal the run of the generation. pause is the pause of a new run,
// or nil. The request contains the stage of the last run of the generation, because status may not show this
// stage yet. If status shows a quarantine, the request contains the stage in status instead, because Temporal
// may have been restored from a backup.
func (p *pass) start(pause *v1alpha1.RolloutPause) runs.Start {
	current := stage.ForStart(p.set)
	if run := p.run; run != nil && run.Stage != nil && run.Stage.Generation == p.set.Generation && stage.QuarantineOf(p.set) == nil {
		current = run.Stage
	}
	next := runs.Start{SidecarSet: runs.Reference(p.set), Generation: p.generation(), Pause: pause, Stage: current}
	if pause == nil && p.pause != nil && p.run != nil {
		// The resume ended the pause that status shows until the next write of status.
		next.Resumed = p.run.Resumed
	}
	return next
}

// observation is the state of a SidecarSet that its status reports.
type observation struct {
	// invalid is set if the pods of the SidecarSet cannot be determined. In this case, plan is empty.
	invalid error
	plan    rollout.Plan
	broken  rollout.BrokenPods
	// frozenReason is the reason of condition Progressing while the plan is frozen. frozenUntil is
	// the time at which the freeze ends by itself, or at which the next window opens.
	frozenReason string
	frozenUntil  *time.Time
	// failure is the reason to pause or to roll back the rollout, or nil if the rollout has not failed.
	failure *protocol.Failure
	// unhealthy is set while upgraded pods have not converged. After some time, these pods may count as
	// failed.
	unhealthy bool
	// endToRecord is set while the pods show that the rollout has ended, but status does not record this end
	// yet. Status records the end only after the run has ended.
	endToRecord bool
	// unreadable describes the pods that do not count as matched, because annotations of the pods are
	// damaged.
	unreadable rollout.UnreadablePods
	// uninjected contains the pods that match but lack the sidecars.
	uninjected uninjectedPods
	// webhookFault is the reason why new pods are not injected. webhookFault is empty if new pods are
	// injected.
	webhookFault string
	// pause is set while the run is paused by signal, as of the last check.
	pause *v1alpha1.RolloutPause
	// fault is the fault of the workers, or the failure to read the run.
	fault runs.Fault
	// evicts is set while the pods that cannot be upgraded are evicted. evicts is also set before the operator
	// has read whether these pods are evicted.
	evicts bool
	// outdatedHashes is set while the hashes in the annotations do not match the content.
	outdatedHashes bool
	// temporal is nil if Temporal accepts rollouts. Otherwise, temporal is the error that conditions
	// report.
	temporal error
}

// uninjectedPods are pods that match a SidecarSet but were not injected. For example, a pod is older than the
// SidecarSet, or was admitted while the API server did not call the webhook. No other count includes these
// pods.
type uninjectedPods struct {
	count   int
	example string
}

// hasWork reports whether the plan has pods to upgrade, standby twins to reset, or a failure that requires a
// pause or a rollback.
func (o *observation) hasWork() bool {
	return len(o.plan.Pods) > 0 || o.plan.Counts.Migrated > 0 || o.failure != nil
}

// hasWorkFor reports whether a signal would cause the sleeping run to upgrade pods, to handle a failure, to
// end the wait for upgraded pods, or to reset standby twins. A paused run only resets standby twins.
func (o *observation) hasWorkFor(run *runs.Run) bool {
	return run.Pause == nil && (len(o.plan.Pods) > 0 || o.failure != nil || o.endsWaitOf(run)) || o.plan.Counts.Migrated > 0 && !run.Resets()
}

// measuresFailuresOf reports whether a run that upgrades no pods has to measure how long upgraded pods are not
// ready (SPEC 11.6.7). The worker measures this time during each plan of the run.
func (o *observation) measuresFailuresOf(run *runs.Run) bool {
	if run.Pause != nil {
		return false
	}
	switch run.Phase {
	case protocol.PhaseFrozen, protocol.PhaseBaking, protocol.PhaseGateRunning, protocol.PhaseAwaitingApproval:
		return o.unhealthy
	}
	return false
}

// mayWake reports whether to wake a run that waits for a signal, and if so, records the wake. Pods that
// repeatedly become ready and unready wake the run at most once per minWakeInterval, because each wake cancels
// the measurement of a gate. While a pod may count as failed, the run plans every minute without a wake-up
// signal.
func (p *pass) mayWake(now time.Time) bool {
	measures := p.measuresFailuresOf(p.run) && now.Sub(p.state.wokenAt) >= minWakeInterval
	return (measures || p.hasWorkFor(p.run)) && p.state.mayWake(p.plan.Counts, respectsBudgets(p.run), now)
}

// respectsBudgets reports whether the step of a run respects PodDisruptionBudgets.
func respectsBudgets(run *runs.Run) bool {
	return run.Stage.Limits() && run.Stage.Step.RespectBudgets
}

// need contains the reasons to wake a sleeping run: work, upgraded pods that are not ready, and the end of a
// step or of a rollback.
type need struct{ work, unhealthy, ends bool }

func (o *observation) need() need {
	return need{o.hasWork(), o.unhealthy, o.planEnds()}
}

// planEnds reports whether the plan shows the end of the step or of the rollback.
func (o *observation) planEnds() bool {
	return o.plan.Phase == protocol.PhaseStepReached || o.plan.Phase == protocol.PhaseQuarantined
}

// endsWaitOf reports whether run waits for upgraded pods although the plan shows the end of the step or of the
// rollback. In this case, all upgraded pods are ready, and the run has no pods to upgrade.
func (o *observation) endsWaitOf(run *runs.Run) bool {
	waits := run.Phase == protocol.PhaseWaiting || run.Phase == protocol.PhaseFrozen
	return waits && o.planEnds()
}

// awaitsStep reports whether pods are left for a later step. Only the run can begin that step.
func (o *observation) awaitsStep() bool {
	return o.plan.Phase == protocol.PhaseStepReached && o.plan.Counts.Remaining > 0
}

// inProgress reports whether pods are left that have to be upgraded or have to converge.
func (o *observation) inProgress() bool {
	return o.plan.Phase == protocol.PhaseProgressing || o.plan.Phase == protocol.PhaseWaiting || o.plan.Phase == protocol.PhaseStepReached || o.plan.Phase == protocol.PhaseQuarantined
}

// rollsBack reports whether the rollout is being rolled back, or has been rolled back.
func (p *pass) rollsBack() bool { return p.target != nil }

// frozen reports whether a RolloutFreeze, or the windows of a RolloutPolicy, prevent upgrades.
func (o *observation) frozen() bool { return o.plan.Phase == protocol.PhaseFrozen }

// awaitsPermit reports whether the rollout waits for a permit of the fleet. Only the run can receive the
// permit.
func (o *observation) awaitsPermit() bool {
	return o.frozen() && o.frozenReason == v1alpha1.ReasonAwaitingPermit
}

// unfinished reports whether the rollout has not ended, and the operator has to check the run. A pause by
// signal is not checked here, because inProgress includes a rollout that is paused by signal.
func (o *observation) unfinished() bool {
	return o.inProgress() || o.plan.Phase == protocol.PhasePaused || o.frozen()
}

// upgradableConditionPending reports whether the condition of at least one pod that is not upgradable still
// has to be written.
func (o *observation) upgradableConditionPending() bool {
	return slices.ContainsFunc(o.plan.FalseConditions, func(pod protocol.PodReference) bool {
		return slices.Contains(o.plan.NotUpgradable, pod)
	})
}

// outcome is the result of reconcileRun for one SidecarSet.
type outcome struct {
	// started is set once Temporal has accepted the generation.
	started bool
	// ended is set once the run has ended, and no other run was started.
	ended bool
	// pause is the pause for status, and is valid only if pauseKnown is set.
	pause      *v1alpha1.RolloutPause
	pauseKnown bool
	// stage is the stage of the run, or nil if the run has no stage or was not read.
	stage *protocol.Stage
	// permit is the permit of the run, or nil if the run has no permit or was not read.
	permit *protocol.Permit
	// resumed is the resume that ended the last pause, if the run contains the resume.
	resumed *protocol.Pause
	fault   runs.Fault
	// waits is the message of a run that waits because of a limit per domain, or because of a
	// PodDisruptionBudget.
	waits string
	// fleetFault is the reason why the workers cannot receive a permit of the fleet.
	fleetFault string
	// rejected is the newest error of Temporal that concerns only the run of this SidecarSet.
	rejected error
	events   []rolloutEvent
	// requeueAfter is zero if only the next change requeues the SidecarSet.
	requeueAfter time.Duration
	err          error
}

// addState copies the fields of state that conditions report.
func (o *outcome) addState(state *runState) {
	o.fault, o.waits, o.fleetFault, o.rejected = state.fault, state.waits, state.fleetFault, state.rejected
}
