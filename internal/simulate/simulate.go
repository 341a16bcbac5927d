// Package simulate simulates the rollout of a SidecarSet with a RolloutPolicy in virtual time. As in a
// worker, internal/rollout selects the pods, and internal/stage decides about steps and windows.
package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/gate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// Input is the input of a simulation.
type Input struct {
	// Set is the SidecarSet, with its default values and its hash annotations.
	Set *v1alpha1.SidecarSet
	// Pods may include pods that the SidecarSet does not match.
	Pods            []*corev1.Pod
	NamespaceLabels func(string) (map[string]string, error)
	// Policy applies to the SidecarSet, even if the selector of the policy does not select the SidecarSet.
	Policy *outriggerv1.RolloutPolicy
	// Freezes are the RolloutFreezes of the cluster.
	Freezes []outriggerv1.RolloutFreeze
	// Cluster contains the data on which the limits of the policy depend.
	Cluster rollout.Cluster
	// Begin is the time at which the rollout begins.
	Begin time.Time
	// ColdRestart is the time from the upgrade of a pod until the pod is ready.
	ColdRestart time.Duration
	// ApprovalAfter is the duration of each wait for an approval.
	ApprovalAfter time.Duration
	// Fail is the number of upgraded pods that fail. The pods that are upgraded first fail.
	Fail int
}

// Run simulates a rollout until the rollout ends, or would wait forever. Run returns an error if the input is
// invalid, or if ctx is cancelled before the end.
func Run(ctx context.Context, in *Input) (*Result, error) {
	s, err := newSimulation(in)
	if err != nil {
		return nil, err
	}
	for !s.ended {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("simulate the rollout of SidecarSet %s: %w", in.Set.Name, err)
		}
		if err := s.advance(); err != nil {
			return nil, err
		}
	}
	return s.result, nil
}

// simulation is a rollout in virtual time.
type simulation struct {
	in *Input
	// set is the SidecarSet without a pause in its spec. policies contains only the policy, with a selector
	// that selects all SidecarSets.
	set      *v1alpha1.SidecarSet
	policies []outriggerv1.RolloutPolicy
	pods     []rollout.Pod
	byName   map[protocol.PodReference]*rollout.Pod
	// readyAt contains the time at which each upgraded pod becomes ready.
	readyAt map[protocol.PodReference]time.Time
	now     time.Time
	stage   *protocol.Stage
	// approvalAt is the time of the approval that the current step waits for.
	approvalAt time.Time
	// failing contains the pods that crash instead of becoming ready.
	failing map[protocol.PodReference]bool
	// stall is set while the progress deadline of the policy runs.
	stall  *protocol.Stall
	result *Result
	// started is set if the last event of the timeline is the upgrade of pods.
	started bool
	ended   bool
}

func newSimulation(in *Input) (*simulation, error) {
	s := &simulation{in: in, now: in.Begin, readyAt: map[protocol.PodReference]time.Time{}, byName: map[protocol.PodReference]*rollout.Pod{}, failing: map[protocol.PodReference]bool{}}
	s.result = &Result{SidecarSet: in.Set.Name, Policy: in.Policy.Name, Begin: metav1.NewTime(in.Begin), ColdRestart: metav1.Duration{Duration: in.ColdRestart}}
	s.set = in.Set.DeepCopy()
	if s.set.Spec.UpdateStrategy.Paused {
		s.set.Spec.UpdateStrategy.Paused = false
		s.note("spec.updateStrategy.paused is true; the simulation ignores it")
	}
	policy := in.Policy.DeepCopy()
	policy.Spec.Selector = metav1.LabelSelector{}
	s.policies = []outriggerv1.RolloutPolicy{*policy}
	if err := s.readPods(); err != nil {
		return nil, err
	}
	var err error
	s.stage, err = stage.Resolve(s.set, nil, s.policies)
	return s, err
}

// readPods determines the states of the pods relative to the SidecarSet. If no pod needs an upgrade, readPods
// uses a hypothetical version with other images instead.
func (s *simulation) readPods() (err error) {
	if s.pods, err = rollout.Population(s.set, s.in.Pods, s.in.NamespaceLabels); err != nil {
		return err
	}
	if len(s.pods) > 0 && !slices.ContainsFunc(s.pods, outdated) {
		if s.set, err = withOtherImages(s.set); err != nil {
			return err
		}
		if s.pods, err = rollout.Population(s.set, s.in.Pods, s.in.NamespaceLabels); err != nil {
			return err
		}
		s.result.Hypothetical = true
	}
	for i := range s.pods {
		pod := &s.pods[i]
		s.byName[pod.Reference()] = pod
		switch {
		case pod.Failed:
			s.result.failed++
		case pod.UnavailableByUpgrade() || pod.Waits() || pod.Resizing:
			s.readyAt[pod.Reference()] = s.now.Add(s.in.ColdRestart)
		case !pod.Ready:
			s.result.notReady++
		}
	}
	plan, err := rollout.Next(s.set, s.pods, nil)
	if err != nil {
		return err
	}
	s.result.addPlan(s.set, &plan)
	return nil
}

func outdated(pod rollout.Pod) bool { return !pod.Updated && pod.Upgradable }

// advance computes a plan and executes it. If the plan upgrades no pod, advance moves the time to the next event.
func (s *simulation) advance() error {
	plan, err := rollout.NextInCluster(s.set, s.pods, nil, s.stage, s.in.Cluster)
	if err != nil {
		return err
	}
	failure, err := rollout.Failure(s.set, s.pods, &plan, s.stage)
	if err != nil {
		return err
	}
	frozen, until, err := stage.Frozen(s.set, s.stage, s.in.Freezes, s.now)
	if err != nil {
		return err
	}
	if frozen != "" {
		plan.Freeze(frozen)
	}
	if failure == nil {
		s.stall = protocol.FollowStall(s.stall, rollout.ProgressDue(s.set, &plan, s.stage), plan.Counts, s.now)
		failure = rollout.Overdue(s.set, s.pods, &plan, s.stage, s.overdue())
	}
	switch {
	case failure != nil:
		s.fail(failure)
	case plan.Phase.Ended():
		s.end(&plan)
	case len(plan.Pods) > 0:
		s.upgrade(&plan)
	case plan.Phase == protocol.PhaseStepReached:
		return s.awaitStep(&plan)
	case plan.Phase == protocol.PhaseFrozen:
		s.awaitThaw(&plan, until)
	default:
		s.awaitPods(&plan)
	}
	return nil
}

func (s *simulation) upgrade(plan *rollout.Plan) {
	for _, selected := range plan.Pods {
		pod := s.byName[selected.PodReference]
		if pod.UnavailableBefore = !pod.Ready && !pod.UnavailableByUpgrade(); !pod.Ready {
			// The current container statuses are from before the upgrade, and would show a failure of the new
			// version.
			upgraded := *pod.Pod
			upgraded.Status.ContainerStatuses, upgraded.Status.InitContainerStatuses = nil, nil
			pod.Pod = &upgraded
		}
		if len(s.failing) < s.in.Fail {
			s.failing[selected.PodReference] = true
		}
		restarts := !pod.Ready || !pod.RestartsNothing || s.failing[selected.PodReference]
		pod.Updated, pod.UpgradedInPlace, pod.UpgradedToVersion = true, true, true
		pod.RolloutEnded, pod.Failed, pod.Migrating, pod.Migrated = false, false, false, false
		pod.RestartsNothing, pod.Resizing, pod.ResizeRestarts = false, false, false
		if restarts {
			pod.Consistent, pod.Ready = false, false
			s.readyAt[selected.PodReference] = s.now.Add(s.in.ColdRestart)
		}
	}
	unavailable := s.result.Most.observe(s.pods, s.in.Cluster.Domain)
	s.result.addBatch(s.now, s.title(), len(plan.Pods), unavailable, s.started)
	s.started = true
}

func (s *simulation) deadline() time.Time { return s.stall.Since.Add(s.stage.ProgressDeadline()) }

// overdue returns the stall once the progress deadline has passed.
func (s *simulation) overdue() *protocol.Stall {
	if s.stall == nil || s.now.Before(s.deadline()) {
		return nil
	}
	return s.stall
}

// fail ends the simulation of a rollout that has failed. The rollback is not simulated.
func (s *simulation) fail(failure *protocol.Failure) {
	s.result.Failed = true
	if q := failure.Quarantine; q != nil {
		s.finish("rolls back to revision "+q.Revision+": "+failure.Reason, "")
		return
	}
	s.finish("pauses: "+failure.Reason, "")
}

// awaitPods continues when the next pod becomes ready, or when the progress deadline has passed. If no pod
// becomes ready and no deadline runs, the simulation ends.
func (s *simulation) awaitPods(plan *rollout.Plan) {
	next, ok := s.nextReady()
	if s.stall != nil && (!ok || s.deadline().Before(next)) {
		next, ok = s.deadline(), true
	}
	if ok {
		s.continueAt(next)
		return
	}
	reason := plan.Message
	if plan.MaxUnavailable == 0 {
		reason = "spec.updateStrategy.maxUnavailable allows no unavailable pod, so no ready pod is upgraded"
	}
	s.stop(reason)
}

// longest limits the duration of a simulated rollout. Without this limit, the simulation of a rollout whose
// windows have no duration would never end.
const longest = 10 * 366 * 24 * time.Hour

// awaitThaw continues at the end of a freeze, or when a window opens. If until is nil, or if the rollout has taken
// longer than longest, the simulation ends.
func (s *simulation) awaitThaw(plan *rollout.Plan, until *time.Time) {
	if until == nil || until.Sub(s.in.Begin) > longest {
		s.stop(plan.Frozen)
		return
	}
	s.event(plan.Frozen)
	s.continueAt(*until)
}

// awaitStep waits for the bake time, the gates and the approval of a reached step, and begins the
// next step.
func (s *simulation) awaitStep(plan *rollout.Plan) error {
	if s.stage.Reached == nil {
		reached := *s.stage
		reached.Reached = new(s.now)
		s.stage = &reached
		s.event(fmt.Sprintf("reached: %d of %d pods", plan.Counts.Updated, plan.Counts.Updated+plan.Counts.Remaining))
		if reached.Step.Bake > 0 {
			s.event("bake " + rollout.FormatDuration(reached.Step.Bake))
		}
	}
	switch phase, _ := s.stage.Wait(s.now); {
	case phase == protocol.PhaseBaking:
		s.continueAt(s.stage.BakeEnd())
	case phase == protocol.PhaseGateRunning:
		s.measureGate()
	case phase == protocol.PhaseAwaitingApproval && s.approvalAt.IsZero():
		s.approvalAt = s.now.Add(s.in.ApprovalAfter)
		s.event("waits for approval (assumed " + assumed(s.in.ApprovalAfter) + ")")
		s.continueAt(s.approvalAt)
	case phase == protocol.PhaseAwaitingApproval && s.now.Before(s.approvalAt):
		s.continueAt(s.approvalAt)
	case phase == protocol.PhaseAwaitingApproval:
		approved := *s.stage
		approved.Approval, s.approvalAt = &protocol.Approval{Reason: "simulated"}, time.Time{}
		s.stage = &approved
	default:
		var err error
		s.stage, err = stage.Resolve(s.set, s.stage.Next(), s.policies)
		return err
	}
	return nil
}

// measureGate records a successful sample of the open gate. If no sample is due yet, measureGate only moves
// the time, at most to the time of the next sample.
func (s *simulation) measureGate() {
	open := s.stage.OpenGate()
	state := s.stage.StateOf(open.Name)
	s.event("gate " + open.Name + " (assumed to succeed)")
	if wait := gate.Wait(open, state, s.now); wait > 0 {
		s.continueAt(s.now.Add(wait))
		return
	}
	state = gate.Record(open, state, protocol.Measurement{Phase: protocol.GateSuccess, Time: s.now})
	s.stage = s.stage.WithGate(state)
}

// continueAt moves the time to at, or to the time at which the next pod becomes ready, whichever is earlier.
// continueAt marks the pods that become ready by the new time as ready, or as crashed.
func (s *simulation) continueAt(at time.Time) {
	if next, ok := s.nextReady(); ok && next.Before(at) {
		at = next
	}
	s.now = at
	for name, ready := range s.readyAt {
		if !ready.After(at) {
			pod := s.byName[name]
			pod.Consistent, pod.Ready, pod.UnavailableBefore, pod.Migrating, pod.Migrated = true, true, false, false, false
			pod.Resizing, pod.ResizeRestarts, pod.NodeLost = false, false, false
			if s.failing[name] {
				pod.Ready, pod.Crashes = false, rollout.MaxCrashes
			}
			delete(s.readyAt, name)
		}
	}
}

func (s *simulation) nextReady() (next time.Time, ok bool) {
	if len(s.readyAt) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(slices.Collect(maps.Values(s.readyAt)), time.Time.Compare), true
}

// end ends a rollout without remaining pods.
func (s *simulation) end(plan *rollout.Plan) {
	s.result.Complete = plan.Phase == protocol.PhaseComplete && s.result.ToUpgrade > 0
	reason := s.whyEnded(plan)
	if !s.result.Complete {
		reason = "ends: " + reason
	}
	s.finish(reason, "")
}

// stop ends the simulation of a rollout that would wait forever.
func (s *simulation) stop(reason string) {
	step := cmp.Or(s.title(), "the rollout")
	s.finish("does not end: "+reason, step+" ")
}

func (s *simulation) finish(message, subject string) {
	s.event(message)
	s.result.End, s.ended = subject+message, true
	s.result.Took = s.after()
}

// event adds an event, unless the last event has the same step and the same message.
func (s *simulation) event(message string) {
	s.started = false
	s.result.add(Event{After: s.after(), Step: s.title(), Message: message})
}

func (s *simulation) after() metav1.Duration { return metav1.Duration{Duration: s.now.Sub(s.in.Begin)} }

func (s *simulation) note(message string) { s.result.Notes = append(s.result.Notes, message) }

// title returns the name of the current step, or an empty string after the last step.
func (s *simulation) title() string {
	if s.stage == nil || s.stage.Done {
		return ""
	}
	return s.stage.Title()
}
