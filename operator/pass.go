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

// pass is the state of one reconcile of a SidecarSet. Its steps add their results to the pass.
type pass struct {
	// before is the SidecarSet at the start of the reconcile. The steps write the status of set.
	// The content of both objects is completed with defaults.
	before, set *v1alpha1.SidecarSet
	pods        []*corev1.Pod
	now         time.Time
	// former is the revision that status named before this pass, or nil. It is a cached object.
	former *appsv1.ControllerRevision
	// target is the revision to which the rollout is rolled back, or nil. It is a cached object.
	target *appsv1.ControllerRevision
	// quarantine is the quarantine of the content at the start of the pass, or nil.
	quarantine *v1alpha1.RolloutQuarantine
	observation
	// state is the state of the run that is kept from one pass to the next.
	state *runState
	// run is the newest run. It is nil until a step has read the run.
	run *runs.Run
	out outcome

	// result is the result of the reconcile. Once ended is set, no further step is executed.
	result reconcile.Result
	ended  bool
}

// end ends the pass, and requeues the SidecarSet.
func (p *pass) end(requeueAfter time.Duration) {
	p.ended, p.result.RequeueAfter = true, requeueAfter
}

// requeue returns the result of the pass. The end of a freeze, and the end of a bake time, requeue the
// SidecarSet, too.
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

// requeueAt requeues the SidecarSet at a time, unless it is requeued earlier.
func (p *pass) requeueAt(at time.Time) {
	left := max(at.Sub(p.now), time.Millisecond)
	if p.result.RequeueAfter == 0 || left < p.result.RequeueAfter {
		p.result.RequeueAfter = left
	}
}

// generation is the input of the run of the generation.
func (p *pass) generation() protocol.GenerationInput {
	images := strings.Join(changedImages(&p.set.Spec, p.former), ", ")
	return protocol.GenerationInput{Generation: p.set.Generation, Images: protocol.Summary(images)}
}

// start is the request to start the run of the generation, or to signal it. Status may not show the last
// stage of a lost run yet. A quarantine in status has priority, because Temporal may have been restored.
func (p *pass) start(pause *v1alpha1.RolloutPause) runs.Start {
	current := stage.ForStart(p.set)
	if run := p.run; run != nil && run.Stage != nil && run.Stage.Generation == p.set.Generation && stage.QuarantineOf(p.set) == nil {
		current = run.Stage
	}
	next := runs.Start{SidecarSet: runs.Reference(p.set), Generation: p.generation(), Pause: pause, Stage: current}
	if pause == nil && p.pause != nil && p.run != nil {
		// Status has the ended pause until the next write.
		next.Resumed = p.run.Resumed
	}
	return next
}

// observation is the state of a SidecarSet that its status reports.
type observation struct {
	// invalid is the error if the pods of the SidecarSet cannot be determined. In this case, plan
	// is empty.
	invalid error
	plan    rollout.Plan
	broken  rollout.BrokenPods
	// frozenReason is the reason of condition Progressing while the plan is frozen. frozenUntil is
	// the time at which the freeze ends by itself, or at which the next window opens.
	frozenReason string
	frozenUntil  *time.Time
	// failure is the reason to pause or to roll back the rollout, if it has failed.
	failure *protocol.Failure
	// unhealthy is set while upgraded pods are not ready, and may count as failed after some time.
	unhealthy bool
	// endToRecord is set while the pods show the end of the rollout, and status does not record
	// the end yet. Status records the end once the run has ended, too.
	endToRecord bool
	// unreadable pods are not matched, because their annotations are damaged.
	unreadable rollout.UnreadablePods
	// uninjected contains the pods that match but lack the sidecars.
	uninjected uninjectedPods
	// webhookFault is the reason for which new pods are not injected. It is empty if new pods are
	// injected.
	webhookFault string
	// pause is set while the run is paused by signal, as of the last check.
	pause *v1alpha1.RolloutPause
	// fault is the fault of the workers, or the fault of reading the run.
	fault runs.Fault
	// evicts is set while the pods that cannot be upgraded are evicted, or may be.
	evicts bool
	// outdatedHashes is set while the hashes in the annotations do not match the content.
	outdatedHashes bool
	// temporal is nil if Temporal accepts rollouts. Otherwise, it is the error that conditions
	// report.
	temporal error
}

// uninjectedPods are pods that match a SidecarSet but were not injected. Such a pod is older than
// the SidecarSet, or was admitted while the API server did not call the webhook. No other count
// includes these pods.
type uninjectedPods struct {
	count   int
	example string
}

// hasWork reports whether the plan has pods to upgrade, standby twins to reset, or a failure to act
// upon.
func (o *observation) hasWork() bool {
	return len(o.plan.Pods) > 0 || o.plan.Counts.Migrated > 0 || o.failure != nil
}

// hasWorkFor reports whether a sleeping run would upgrade pods, reset standby twins, or end the wait for
// upgraded pods after a signal. A paused run upgrades no pods.
func (o *observation) hasWorkFor(run *runs.Run) bool {
	return run.Pause == nil && (len(o.plan.Pods) > 0 || o.failure != nil || o.endsWaitOf(run)) || o.plan.Counts.Migrated > 0 && !run.Resets()
}

// measuresFailuresOf reports whether a run that upgrades no pods has to measure for how long upgraded
// pods are not ready (SPEC 11.6.7). Only workers measure, when the run plans.
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

// mayWake reports whether to wake a run that waits for a signal. If so, it records the wake. Pods that
// become ready and unready again wake the run less often, because each wake cancels the measurement of a
// gate. While a pod may count as failed, the run plans every minute in any case.
func (p *pass) mayWake(now time.Time) bool {
	measures := p.measuresFailuresOf(p.run) && now.Sub(p.state.wokenAt) >= minWakeInterval
	return (measures || p.hasWorkFor(p.run)) && p.state.mayWake(p.plan.Counts, now)
}

// endsWaitOf reports whether a run waits for upgraded pods that are ready now, so that its step is
// reached or its rollback has ended. No pod is left that the run could upgrade.
func (o *observation) endsWaitOf(run *runs.Run) bool {
	waits := run.Phase == protocol.PhaseWaiting || run.Phase == protocol.PhaseFrozen
	return waits && (o.plan.Phase == protocol.PhaseStepReached || o.plan.Phase == protocol.PhaseQuarantined)
}

// awaitsStep reports whether pods are left for a later step. Only a run begins that step.
func (o *observation) awaitsStep() bool {
	return o.plan.Phase == protocol.PhaseStepReached && o.plan.Counts.Remaining > 0
}

// inProgress reports whether pods are left that have to be upgraded or have to converge.
func (o *observation) inProgress() bool {
	return o.plan.Phase == protocol.PhaseProgressing || o.plan.Phase == protocol.PhaseWaiting || o.plan.Phase == protocol.PhaseStepReached || o.plan.Phase == protocol.PhaseQuarantined
}

// rollsBack reports whether the rollout is rolled back, or was rolled back, as of the plan.
func (p *pass) rollsBack() bool { return p.target != nil }

// frozen reports whether a RolloutFreeze, or the windows of a RolloutPolicy, prevent upgrades.
func (o *observation) frozen() bool { return o.plan.Phase == protocol.PhaseFrozen }

// awaitsPermit reports whether the rollout waits for a permit of the fleet, which only a run receives.
func (o *observation) awaitsPermit() bool {
	return o.frozen() && o.frozenReason == v1alpha1.ReasonAwaitingPermit
}

// unfinished reports whether the run has to be checked. A pause by signal alone requires no
// check. The pods that wait because of the pause count as in progress.
func (o *observation) unfinished() bool {
	return o.inProgress() || o.plan.Phase == protocol.PhasePaused || o.frozen()
}

// upgradableConditionPending reports whether a pod that cannot be upgraded does not
// have its condition yet.
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
	// pause is the pause for status. It is valid only if pauseKnown is set.
	pause      *v1alpha1.RolloutPause
	pauseKnown bool
	// stage is the stage of the run, if the run has one and was read.
	stage *protocol.Stage
	// permit is the permit of the run, if the run has one and was read.
	permit *protocol.Permit
	// resumed is the resume that ended the last pause, if the run contains the resume.
	resumed *protocol.Pause
	fault   runs.Fault
	// waits is the message of a run that waits for a slot of a domain or of a PodDisruptionBudget.
	waits string
	// fleetFault is the reason for which the workers cannot receive a permit of the fleet.
	fleetFault string
	// rejected is the error of the newest start, if Temporal rejected it for this SidecarSet only.
	rejected error
	events   []rolloutEvent
	// requeueAfter is zero if only the next change requeues the SidecarSet.
	requeueAfter time.Duration
	err          error
}

// addState adds what conditions report about the run.
func (o *outcome) addState(state *runState) {
	o.fault, o.waits, o.fleetFault, o.rejected = state.fault, state.waits, state.fleetFault, state.rejected
}
