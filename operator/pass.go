package operator

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/operator/runs"
)

// pass is one reconcile of a SidecarSet: what its steps read, find and decide.
type pass struct {
	// before is the SidecarSet at the start. The steps write the status of set. The
	// content of both is completed.
	before, set *v1alpha1.SidecarSet
	pods        []*corev1.Pod
	now         time.Time
	observation
	// state remembers the run from one pass to the next.
	state *runState
	// run is the newest run, once it is read.
	run *runs.Run
	out outcome

	// result is that of the reconcile. No step follows once ended is set.
	result reconcile.Result
	ended  bool
}

// end ends the pass, and requeues the SidecarSet.
func (p *pass) end(requeueAfter time.Duration) {
	p.ended, p.result.RequeueAfter = true, requeueAfter
}

// observation is what status says about a SidecarSet.
type observation struct {
	// invalid is the error if the pods of the SidecarSet cannot be determined; plan is empty then.
	invalid error
	plan    rollout.Plan
	broken  brokenPods
	// endToRecord is set while the rollout has ended if its run has, and status does not
	// record that.
	endToRecord bool
	// unreadable pods are not matched, because their annotations are damaged.
	unreadable rollout.UnreadablePods
	// uninjected pods match but lack the sidecars.
	uninjected uninjectedPods
	// webhookFault says why new pods are not injected; empty if they are.
	webhookFault string
	// pause is set while the run is paused by signal, as of the last check.
	pause *v1alpha1.RolloutPause
	// fault is that of the workers, or of reading the run.
	fault runs.Fault
	// outdatedHashes is set while the annotations are not those of the content.
	outdatedHashes bool
	// temporal is the error while Temporal accepts no rollouts.
	temporal error
}

// brokenPods are matched pods with a sidecar that cannot start.
type brokenPods struct {
	count int
	// reason is that of Degraded; example and detail are of the first pod by name.
	reason, example, detail string
}

// uninjectedPods match a SidecarSet but were not injected: they are older than the
// SidecarSet, or were admitted while the webhook was not called. Nothing else shows them.
type uninjectedPods struct {
	count   int
	example string
}

// hasWork reports whether there is something for the run to do now.
func (o *observation) hasWork() bool {
	return len(o.plan.Pods) > 0 || o.plan.Counts.Migrated > 0
}

// hasWorkFor reports whether a run that sleeps would upgrade pods, which a pause prevents,
// or reset standby twins.
func (o *observation) hasWorkFor(run *runs.Run) bool {
	return run.Pause == nil && len(o.plan.Pods) > 0 || o.plan.Counts.Migrated > 0 && !run.Resets()
}

// inProgress reports whether pods are still to be upgraded, or to converge.
func (o *observation) inProgress() bool {
	return o.plan.Phase == protocol.PhaseProgressing || o.plan.Phase == protocol.PhaseWaiting
}

// unfinished reports whether the run has to be checked. A pause alone is no reason: the
// pods that it stops are progress.
func (o *observation) unfinished() bool {
	return o.inProgress() || o.plan.Phase == protocol.PhasePaused
}

// upgradableConditionPending reports whether a pod that cannot be upgraded does not
// have its condition yet.
func (o *observation) upgradableConditionPending() bool {
	return slices.ContainsFunc(o.plan.FalseConditions, func(pod protocol.PodReference) bool {
		return slices.Contains(o.plan.NotUpgradable, pod)
	})
}

// outcome is the result of reconcileRun.
type outcome struct {
	// started is set once Temporal has accepted the generation.
	started bool
	// ended is set once the run has ended, and no other was started.
	ended bool
	// pause is the pause for status, if pauseKnown.
	pause      *v1alpha1.RolloutPause
	pauseKnown bool
	// resumed says by whom the last pause was ended, if the run says so.
	resumed *protocol.Pause
	fault   runs.Fault
	events  []rolloutEvent
	// requeueAfter is zero if the next change requeues the SidecarSet anyway.
	requeueAfter time.Duration
	err          error
}
