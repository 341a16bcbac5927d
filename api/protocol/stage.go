package protocol

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

// These names belong to runs with a RolloutPolicy.
const (
	// StageMemo is the memo that contains the Stage of a run.
	StageMemo = "stage"
	// ApproveUpdate approves the current step. PromoteUpdate ends the current step immediately, or all
	// steps.
	ApproveUpdate = "approve"
	PromoteUpdate = "promote"
	// AbortUpdate rolls back the rollout. RetryUpdate ends the quarantine of the content, so that the rollout
	// restarts from the first step.
	AbortUpdate = "abort"
	RetryUpdate = "retry"
)

// Stage is the position of a run within the steps of a RolloutPolicy.
type Stage struct {
	Generation int64 `json:"generation"`
	// Hash is the hash of the content. Hash is empty until the first plan of the stage, and in a stage of an
	// older worker.
	Hash string `json:"hash,omitempty"`
	// Policy is the name of the RolloutPolicy. Steps is the number of steps of the policy.
	Policy string `json:"policy"`
	Steps  int    `json:"steps"`
	// Index is the index of the current step, from 0.
	Index int `json:"index"`
	// Step is a copy of the current step. A change of the policy applies to later steps only. Step
	// is nil until the next plan reads the step from the policy.
	Step *Step `json:"step,omitempty"`
	// Reached is the time at which all pods of the step were updated and ready. Until then, Reached is nil.
	Reached *time.Time `json:"reached,omitempty"`
	// Approval is the approval of the current step, if any.
	Approval *Approval `json:"approval,omitempty"`
	// Gates are the gates of the step that have started, in the order of the step. GateAttempt increases with
	// each resume that restarts the gates.
	Gates       []GateState `json:"gates,omitempty"`
	GateAttempt int         `json:"gateAttempt,omitempty"`
	// Tolerated is the number of failed pods that a user accepted by a resume. The limit of failed pods
	// increases by this number.
	Tolerated int `json:"tolerated,omitempty"`
	// Failed is the number of failed pods when a failure paused the run. Otherwise, Failed is nil. The worker
	// of the next plan may not have observed these pods long enough to count them (SPEC 11.6.7).
	Failed *int `json:"failed,omitempty"`
	// Accept is set by a resume. The next plan counts the pods that have failed, sets Tolerated to at least
	// Failed, and clears Failed.
	Accept bool `json:"accept,omitempty"`
	// Done is set once neither a step nor a limit of the policy applies to the rollout.
	Done bool `json:"done,omitempty"`
	// Aborted is the request to abort the rollout, until the rollback begins.
	Aborted *Approval `json:"aborted,omitempty"`
	// Quarantine is set while the rollout is rolled back, and afterwards.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// Retried is the start time of the last rollback that a retry ended.
	Retried time.Time `json:"retried,omitzero"`
}

// HasRetried reports whether a retry has ended the rollback that began at the time began. The comparison
// ignores fractions of a second, because status records whole seconds.
func (s *Stage) HasRetried(began time.Time) bool {
	return !s.Retried.IsZero() && s.Retried.Truncate(time.Second).Equal(began.Truncate(time.Second))
}

// Quarantine is content whose rollout failed, or was aborted. The run upgrades the pods with this
// content to a former revision.
type Quarantine struct {
	// Hash is the hash of the content.
	Hash string `json:"hash"`
	// Revision is the name of the ControllerRevision to which the run rolls back.
	Revision string `json:"revision"`
	Reason   string `json:"reason,omitempty"`
	// Since is the time at which the rollback began. Since is zero in a result of NextBatch.
	Since time.Time `json:"since,omitzero"`
}

// Message describes the quarantine for users, with the revision and the reason.
func (q *Quarantine) Message() string {
	return "rolled back to revision " + q.Revision + ": " + q.Reason
}

// Step is one step of a RolloutPolicy.
type Step struct {
	Name string `json:"name,omitempty"`
	// UpTo is the number or the percentage of pods that are updated at the end of the step.
	UpTo intstr.IntOrString `json:"upTo"`
	Bake time.Duration      `json:"bake,omitempty"`
	// Approval is set if the step waits for an approval after the bake time and the gates.
	Approval bool `json:"approval,omitempty"`
	// MaxFailed is the number or the percentage of failed pods above which the rollout has failed.
	// Nil means that there is no limit.
	MaxFailed *intstr.IntOrString `json:"maxFailed,omitempty"`
	// Rollback is set if the run rolls back after a failure. Otherwise, the run is paused.
	Rollback bool `json:"rollback,omitempty"`
	// UnreadyFor is the time after which an upgraded pod that is not ready counts as failed. AppRestarts
	// is the number of restarts of app containers at which an upgraded pod counts as failed. A field with
	// the value 0 has no effect.
	UnreadyFor  time.Duration `json:"unreadyFor,omitempty"`
	AppRestarts int32         `json:"appRestarts,omitempty"`
	// ProgressDeadline is the time within which another pod must become updated and ready. After this time,
	// the rollout has failed. 0 means that there is no deadline.
	ProgressDeadline time.Duration `json:"progressDeadline,omitempty"`
	// MaxPerOwner is the maximum number of pods of one owner that upgrades make unavailable at once. 0 means
	// that there is no limit.
	MaxPerOwner int `json:"maxPerOwner,omitempty"`
	// Domains limits the number of domains in which upgrades may make pods unavailable at once. Nil means that
	// there is no limit.
	Domains *Domains `json:"domains,omitempty"`
	// RespectBudgets is set if PodDisruptionBudgets limit the pods that upgrades make unavailable.
	RespectBudgets bool `json:"respectBudgets,omitempty"`
	// Windows are the times at which upgrades may start. Without windows, upgrades may start at any time.
	Windows []Window `json:"windows,omitempty"`
	// Gates decide after the bake time whether the rollout continues.
	Gates []outriggerv1.RolloutGate `json:"gates,omitempty"`
}

// Domains limits the number of domains in which upgrades may make pods unavailable at once. A domain is a value
// of a label of nodes.
type Domains struct {
	TopologyKey    string `json:"topologyKey"`
	MaxUnavailable int    `json:"maxUnavailable"`
}

// Window is a recurring period in which upgrades may start.
type Window struct {
	// Schedule is a cron expression of the start, in the time zone. An empty time zone is UTC.
	Schedule string        `json:"schedule"`
	Duration time.Duration `json:"duration"`
	TimeZone string        `json:"timeZone,omitempty"`
}

// Next returns the stage at the start of the next step.
func (s *Stage) Next() *Stage {
	return &Stage{Generation: s.Generation, Hash: s.Hash, Policy: s.Policy, Steps: s.Steps, Index: s.Index + 1, Tolerated: s.Tolerated, Failed: s.Failed, Accept: s.Accept, Retried: s.Retried}
}

// Stall records how long no pod has become updated and ready, although a run with a ProgressDeadline could
// upgrade pods, or waited for upgraded pods.
type Stall struct {
	Since time.Time `json:"since"`
	// Ready is the largest number of updated pods that were ready at once, minus the pods that were deleted
	// since then. Therefore, a pod that becomes ready again does not count as progress. Updated is the number
	// of updated pods when the run last planned.
	Ready   int `json:"ready"`
	Updated int `json:"updated,omitempty"`
}

// mark returns Ready minus the number of updated pods that were deleted since the last plan. updated is the
// number of updated pods in the new plan.
func (s *Stall) mark(updated int) int {
	return max(s.Ready-max(s.Updated-updated, 0), 0)
}

// Progressed reports whether another pod has become updated and ready in a plan with counts.
func (s *Stall) Progressed(counts Counts) bool { return counts.UpdatedReady > s.mark(counts.Updated) }

// FollowStall returns the stall after a plan with counts at the time now. due is true while the progress
// deadline applies. The stall begins when the deadline begins to apply, and again with each pod that becomes
// updated and ready for the first time. FollowStall returns nil while the deadline does not apply.
func FollowStall(stall *Stall, due bool, counts Counts, now time.Time) *Stall {
	switch {
	case !due:
		return nil
	case stall == nil || stall.Progressed(counts):
		return &Stall{Since: now, Ready: counts.UpdatedReady, Updated: counts.Updated}
	}
	return &Stall{Since: stall.Since, Ready: stall.mark(counts.Updated), Updated: counts.Updated}
}

// Failure is the reason to pause or to roll back a rollout.
type Failure struct {
	// Pods is the number of failed pods.
	Pods   int    `json:"pods"`
	Reason string `json:"reason"`
	// Overdue is set if the progress deadline has passed.
	Overdue bool `json:"overdue,omitempty"`
	// Quarantine is set if the rollout is rolled back. Otherwise, the rollout is paused.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// ProgressDeadline returns the time within which another pod must become updated and ready, or 0 if no
// deadline applies.
func (s *Stage) ProgressDeadline() time.Duration {
	if !s.Limits() {
		return 0
	}
	return max(s.Step.ProgressDeadline, 0) // a policy that was stored before the validation existed may have a negative deadline
}

// Limits reports whether the stage limits the pods that are upgraded. A rollback has no such limits.
func (s *Stage) Limits() bool { return s.HasStep() && s.Quarantine == nil }

// HasStep reports whether the stage has a current step. During a rollback, the stage keeps the step.
func (s *Stage) HasStep() bool { return s != nil && !s.Done && s.Step != nil }

// BakeEnd returns the time at which the bake time of a reached step ends.
func (s *Stage) BakeEnd() time.Time { return s.Reached.Add(s.Step.Bake) }

// Wait returns the phase of the run at the time now, and a message. If a reached step waits for the bake
// time, a gate or an approval, the phase and the message describe this wait. Otherwise, the phase is
// PhaseProgressing, and the message is the title of the step.
func (s *Stage) Wait(now time.Time) (phase Phase, message string) {
	switch {
	case s.Reached == nil || s.Step == nil:
	case now.Before(s.BakeEnd()):
		return PhaseBaking, fmt.Sprintf("%s bakes until %s", s.Title(), s.BakeEnd().UTC().Format(time.RFC3339))
	case s.OpenGate() != nil:
		return PhaseGateRunning, s.StateOf(s.OpenGate().Name).Awaited(s.Title())
	case s.Step.Approval && s.Approval == nil:
		return PhaseAwaitingApproval, s.Title() + " waits for approval"
	}
	return PhaseProgressing, s.Title()
}

// Title names the current step for users, such as "step 2 of 4 (canary)".
func (s *Stage) Title() string {
	title := fmt.Sprintf("step %d of %d", s.Index+1, s.Steps)
	if s.Step != nil && s.Step.Name != "" {
		title += " (" + s.Step.Name + ")"
	}
	return title
}

// Approval is an approval of a step.
type Approval struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// StepRequest is the payload of the updates approve, promote, abort and retry.
type StepRequest struct {
	Approval
	// Generation and Step are the generation and the index that the user saw. The run rejects a request for
	// another generation. The run also rejects an approve or a promote for another step. Therefore, a request
	// that is sent twice has only one effect.
	Generation int64 `json:"generation"`
	Step       int   `json:"step"`
	// Hash is the hash of the content that the user saw, or empty if the hash is unknown.
	Hash string `json:"hash,omitempty"`
	// Full makes a promote end all steps.
	Full bool `json:"full,omitempty"`
	// NotAfter is the time after which the run rejects the request, if any. See LateRequest.
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// StepResult answers the updates approve, promote, abort and retry.
type StepResult struct {
	Message string `json:"message"`
}
