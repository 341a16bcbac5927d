package protocol

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// NoAnswer is the message about a run for which no worker answers queries. The message contains the command
// that shows the cause.
const NoAnswer = "no worker responds for the run (kubectl sidecarset check)"

// These names are registered with Temporal. The names are string literals, so that a rename of a
// Go function does not break recorded histories.
const (
	RolloutWorkflow                   = "Rollout"
	NextBatchActivity                 = "NextBatch"
	UpgradeBatchActivity              = "UpgradeBatch"
	AwaitMigrationActivity            = "AwaitMigration"
	ResetBatchActivity                = "ResetBatch"
	WriteUpgradableConditionsActivity = "MarkPods"
	MeasureGateActivity               = "MeasureGate"
	GenerationSignal                  = "generation"
	PauseSignal                       = "pause"
	ResumeSignal                      = "resume"
	PauseUpdate                       = "pause"
	ResumeUpdate                      = "resume"
	StatusQuery                       = "status"
	PauseMemo                         = "hold"
	ResumeMemo                        = "resume"
	SidecarSetAttribute               = "SidecarSet"
	GenerationAttribute               = "SidecarSetGeneration"
	RolloutPhaseAttribute             = "RolloutPhase"
)

// LateRequest is the type of the error with which a run rejects an update after the time NotAfter of the
// update. Temporal keeps an update until a worker runs. Therefore, a sender sets NotAfter to the time until
// which the sender waits for the answer.
const LateRequest = "LateRequest"

// ActionUpdatePrefix is the prefix of the ids of the updates that carry out RolloutActions.
const ActionUpdatePrefix = "rolloutaction/"

// NotPaused is the message with which a run that is not paused rejects a resume.
const NotPaused = "the run is not paused"

// WorkflowID returns the workflow id of every run of a SidecarSet. Temporal keeps at most one run open for a
// workflow id. Therefore, two generations never roll out at the same time.
func WorkflowID(name string, uid types.UID) string {
	return fmt.Sprintf("sidecarset/%s/%s", name, uid)
}

// WriteTaskQueue returns the task queue of the activities that write pods. Workflow tasks and other
// activities use taskQueue itself. Therefore, the tasks of one queue do not wait for the tasks of the other
// queue.
func WriteTaskQueue(taskQueue string) string { return taskQueue + "/write" }

// SetReference identifies a SidecarSet by name and uid. A SidecarSet that is recreated under the
// same name has another uid.
type SetReference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// PodReference identifies a pod by namespace, name and uid.
type PodReference struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

func (p PodReference) String() string { return p.Namespace + "/" + p.Name }

// WrittenPod is a pod after a write. If ResourceVersion is empty, the result of the write is unknown.
type WrittenPod struct {
	PodReference
	ResourceVersion string `json:"resourceVersion"`
}

// SelectedPod is a pod that is selected for a batch.
type SelectedPod struct {
	PodReference
	// Unready is set if the pod was not ready when the pod was selected. Such a pod needs no slot of
	// maxUnavailable. If the pod becomes ready before the upgrade, the batch does not upgrade the pod, because
	// the upgrade of a ready pod needs a slot.
	Unready bool `json:"unready,omitempty"`
}

// Phase is the phase of a run. The search attribute RolloutPhase of the run contains the phase. The attribute
// value Waiting means that the run sleeps until a signal arrives or a timer fires.
type Phase string

// These are the phases of a run. A run ends in one of the last five phases. A plan has the phase StepReached
// if all pods of a step are updated and ready. After this plan, the run is in phase Baking, GateRunning or
// AwaitingApproval, or begins the next step immediately. In phase Frozen, a RolloutFreeze, closed windows or a
// missing permit of the fleet prevent the next upgrades. In phase Quarantined, the rollback has ended, and
// the run waits for a retry.
const (
	PhaseProgressing      Phase = "Progressing"
	PhaseWaiting          Phase = "Waiting"
	PhaseStepReached      Phase = "StepReached"
	PhaseBaking           Phase = "Baking"
	PhaseGateRunning      Phase = "GateRunning"
	PhaseAwaitingApproval Phase = "AwaitingApproval"
	PhasePaused           Phase = "Paused"
	PhaseFrozen           Phase = "Frozen"
	PhaseQuarantined      Phase = "Quarantined"
	PhaseComplete         Phase = "Complete"
	PhasePartitionReached Phase = "PartitionReached"
	PhaseNotUpdate        Phase = "NotUpdate"
	PhaseSuperseded       Phase = "Superseded"
	PhaseDeleted          Phase = "Deleted"
)

// Ended reports whether a run in this phase has nothing left to do.
func (p Phase) Ended() bool {
	switch p {
	case PhaseComplete, PhasePartitionReached, PhaseNotUpdate, PhaseSuperseded, PhaseDeleted:
		return true
	}
	return false
}

// Counts contains the numbers of pods of a SidecarSet in the newest plan.
type Counts struct {
	Matched      int `json:"matched"`
	Updated      int `json:"updated"`
	Ready        int `json:"ready"`
	UpdatedReady int `json:"updatedReady"`
	// Unavailable counts the pods that are unavailable because of an upgrade.
	Unavailable int `json:"unavailable"`
	// Converging counts the pods that were upgraded to this version, and are not consistent or not ready yet.
	Converging int `json:"settling"`
	// Remaining counts the pods that this run still has to upgrade.
	Remaining int `json:"remaining"`
	// NotUpgradable counts the outdated pods that cannot be upgraded in place to this version.
	NotUpgradable int `json:"notUpgradable"`
	// Migrating counts the pods with a standby twin that is not reset yet. Migrated counts the
	// migrating pods whose standby twins can be reset now.
	Migrating int `json:"migrating,omitempty"`
	Migrated  int `json:"migrated,omitempty"`
}

// RolloutInput is the input of a run. A continue-as-new passes the state of a run to the next run
// in this input.
type RolloutInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	// Images are the images of the generation. See GenerationInput.
	Images string `json:"images,omitempty"`
	// Pause is set while the run is paused by a signal or an update.
	Pause *Pause `json:"hold,omitempty"`
	// Progress is the progress of the same generation before a continue-as-new.
	Progress Progress `json:"progress,omitzero"`
}

// Progress is the state of a run that outlives a continue-as-new.
type Progress struct {
	Batches        int `json:"batches,omitempty"`
	Upgraded       int `json:"upgraded,omitempty"`
	RejectedWrites int `json:"failed,omitempty"`
	// Written contains the pods that the newest batch wrote. The next plan waits until the cache
	// shows the write or the deletion of each of these pods.
	Written []WrittenPod `json:"written,omitempty"`
	// Migrating is set while some standby twins may still have to be reset.
	Migrating bool `json:"migrating,omitempty"`
	// Run is the id of the first run of the chain. The Lease of the SidecarSet names this id as the holder.
	Run string `json:"run,omitempty"`
	// Stage is the position within the steps of a RolloutPolicy, or nil without a policy.
	Stage *Stage `json:"stage,omitempty"`
	// Stall is nil unless the ProgressDeadline of the step applies.
	Stall *Stall `json:"stall,omitempty"`
	// Permit is the permit of the fleet, if the cluster is a member of a fleet.
	Permit *Permit `json:"permit,omitempty"`
	// Rejected contains the pods whose upgrade was rejected. RejectedConditions contains the pods
	// for which the write of condition SidecarSetUpgradable was rejected.
	Rejected           Rejections `json:"refused,omitzero"`
	RejectedConditions Rejections `json:"refusedConditions,omitzero"`
	// Actions contains the answers to the newest RolloutActions.
	Actions []ActionAnswer `json:"actions,omitempty"`
}

// ActionAnswer is the answer to the update of a RolloutAction.
type ActionAnswer struct {
	// UpdateID is the id of the update.
	UpdateID string `json:"updateID"`
	Message  string `json:"message"`
}

// RolloutResult is the result of a run.
type RolloutResult struct {
	Phase    Phase  `json:"phase"`
	Message  string `json:"message"`
	Counts   Counts `json:"counts"`
	Batches  int    `json:"batches"`
	Upgraded int    `json:"upgraded"`
}

// GenerationInput is the payload of the signal generation. A run of an older generation continues
// as new with the generation of the signal. A sleeping run of the same generation plans again.
type GenerationInput struct {
	Generation int64 `json:"generation"`
	// Images lists the images that differ from the previous generation, or all images, in the form
	// container=image. Images is one line of at most MaxSummary bytes. The Temporal UI shows Images to users.
	Images string `json:"images,omitempty"`
	// Stage is the stage that status records for the generation, if any. A run of another generation
	// continues as new in this stage.
	Stage *Stage `json:"stage,omitempty"`
}

// Pause is the payload of pause and resume, as signals and as updates. The memo PauseMemo
// contains the pause that is in effect. If no pause is in effect, ResumeMemo contains the resume
// that ended the last pause.
type Pause struct {
	// By is the user that sent the pause or the resume.
	By     string `json:"who,omitempty"`
	Reason string `json:"why,omitempty"`
	// Sent is set in an update that follows a signal of the same name. Such an update only requests the
	// answer, and does not pause or resume the run. Otherwise, the update could take effect after a later
	// signal.
	Sent bool `json:"sent,omitempty"`
	// NotAfter is the time after which the run rejects the update, if any. See LateRequest.
	NotAfter time.Time `json:"notAfter,omitzero"`
	// At is the time at which the run was paused. The run sets At. If the time is unknown, At is zero.
	At time.Time `json:"at,omitzero"`
}

// MaxPauseText limits the name and the reason of a pause, in bytes each, because a condition contains the
// name and the reason.
const MaxPauseText = 1024

// Bounded returns the pause with By and Reason shortened to MaxPauseText bytes each. A run cannot reject a
// signal, so the texts of a signal may be longer.
func (p Pause) Bounded() Pause {
	p.By, p.Reason = Shortened(p.By, MaxPauseText), Shortened(p.Reason, MaxPauseText)
	return p
}

// Details returns the user and the reason as a suffix for messages, such as " from ann: errors". Details omits
// empty fields.
func (p Pause) Details() (text string) {
	if p.By != "" {
		text = " from " + p.By
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// Sentence describes the pause, such as "paused by signal from ann: errors" or "paused by RolloutPolicy
// edge: 3 pods failed".
func (p Pause) Sentence() string {
	if p.ByPolicy() {
		return "paused by " + p.By + ": " + p.Reason
	}
	return "paused by signal" + p.Details()
}

// ByPolicy reports whether a RolloutPolicy paused the rollout.
func (p Pause) ByPolicy() bool { return strings.HasPrefix(p.By, policyPrefix) }

const policyPrefix = "RolloutPolicy "

// PauseByPolicy returns the pause by a RolloutPolicy. A RolloutPolicy pauses a rollout that has failed, or
// whose gate is inconclusive.
func PauseByPolicy(policy, reason string) Pause {
	return Pause{By: policyPrefix + policy, Reason: reason}
}

// PauseResult answers the updates pause and resume.
type PauseResult struct {
	// Paused reports whether the run is paused now.
	Paused bool `json:"held"`
	// Message describes the effect on a batch in progress.
	Message string `json:"message"`
}

// RolloutStatus answers the query status.
type RolloutStatus struct {
	SidecarSet     SetReference `json:"sidecarSet"`
	Generation     int64        `json:"generation"`
	Phase          Phase        `json:"phase"`
	Message        string       `json:"message"`
	Pause          *Pause       `json:"hold,omitempty"`
	Counts         Counts       `json:"counts"`
	Batches        int          `json:"batches"`
	Upgraded       int          `json:"upgraded"`
	RejectedWrites int          `json:"failed"`
	// Since is the time at which the run started with this generation.
	Since time.Time `json:"since"`
	// Stage is the position within the steps of a RolloutPolicy, or nil without a policy.
	Stage *Stage `json:"stage,omitempty"`
	// Permit is the permit of the fleet, if the run has one.
	Permit *Permit `json:"permit,omitempty"`
	// FleetFault is the reason why no permit can arrive. FleetFault is set only while the run waits for a
	// permit and the connection to the fleet fails.
	FleetFault string `json:"fleetFault,omitempty"`
}

// NextBatchInput is the input of the activity NextBatch.
type NextBatchInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	Written    []WrittenPod `json:"written,omitempty"`
	// Rejected contains the pods whose writes were rejected in earlier batches of this run.
	Rejected Rejected `json:"refused,omitzero"`
	// RejectedConditions contains the pods for which the write of condition SidecarSetUpgradable was
	// rejected.
	RejectedConditions Rejected `json:"refusedConditions,omitzero"`
	// SkipTrueConditions is set while an activity writes TrueConditions of an earlier plan. TrueConditions of
	// the result is then empty.
	SkipTrueConditions bool `json:"skipLateMarks,omitempty"`
	// Quiet is set if no pod has been upgraded for a while. In this case, the result may contain TrueConditions
	// while pods are not ready.
	Quiet bool `json:"quiet,omitempty"`
	// Paused is set while the run is paused. In this case, NextBatch selects no pods, and only returns the
	// counts.
	Paused bool `json:"held,omitempty"`
	// MigrationIdle is set while no activity of the run waits for standby twins that can be reset, or resets
	// standby twins. In this case, NextBatch returns soon after a standby twin can be reset.
	MigrationIdle bool `json:"migrationIdle,omitempty"`
	// Run is the id of the run. The run holds the Lease of the SidecarSet while the run upgrades pods.
	// NextBatch releases the Lease when the run has no pods left to upgrade.
	Run string `json:"run,omitempty"`
	// Stage is the Stage of the run, if any. NextBatch reads the next step from the RolloutPolicy
	// if Stage has no step.
	Stage *Stage `json:"stage,omitempty"`
	// Stages is set by workflows that support stages, freezes and windows. If Stages is not set, the phase is
	// Waiting while a stage, a freeze or a window prevents upgrades. During a rolling update of the workers,
	// a workflow of an older version may request a plan from a newer worker.
	Stages bool `json:"stages,omitempty"`
	// Overdue is set once the ProgressDeadline of the step has passed. In this case, NextBatch reports a
	// failure, unless another pod has become updated and ready, or the deadline no longer applies.
	Overdue *Stall `json:"overdue,omitempty"`
	// Permit is the permit of the fleet, if the run has one.
	Permit *Permit `json:"permit,omitempty"`
}

// NextBatchResult contains the selected pods. If no pod is selected, Message is the reason.
type NextBatchResult struct {
	Phase   Phase         `json:"phase"`
	Message string        `json:"message"`
	Pods    []SelectedPod `json:"pods,omitempty"`
	// Queued contains the pods that are upgraded after Pods, in order, as slots are released.
	Queued []SelectedPod `json:"reserve,omitempty"`
	Counts Counts        `json:"counts"`
	// Generation is set if the SidecarSet has another generation than the input. The generation
	// is older than the input if a signal named a generation that the cluster never had, or if
	// the cluster was restored from a backup.
	Generation int64 `json:"generation,omitempty"`
	// Hot is set if standby twins must be reset after an upgrade.
	Hot bool `json:"hot,omitempty"`
	// FalseConditions contains the pods whose condition SidecarSetUpgradable must be written before any other
	// write. TrueConditions contains the pods whose condition may be written while batches are running.
	FalseConditions []PodReference `json:"marks,omitempty"`
	TrueConditions  []PodReference `json:"lateMarks,omitempty"`
	// Gone identifies the rejected pods that this run no longer has to upgrade.
	Gone Fingerprints `json:"gone,omitempty"`
	// GoneConditions identifies the pods for which the write of the condition was rejected, and is no
	// longer needed.
	GoneConditions Fingerprints `json:"goneConditions,omitempty"`
	// Failure is set if the rollout has failed: the failed pods exceed the limit of the
	// RolloutPolicy, a gate has failed, the progress deadline has passed, or a user aborted the rollout.
	Failure *Failure `json:"failure,omitempty"`
	// Stage is the stage that the plan used, or nil without a RolloutPolicy. In phase Superseded, Stage is
	// the stage that status records for Generation.
	Stage *Stage `json:"stage,omitempty"`
	// FleetFault is the reason why no permit can arrive, with the remedy. FleetFault is set only while the
	// rollout waits for a permit.
	FleetFault string `json:"fleetFault,omitempty"`
	// FrozenUntil is the time at which the phase Frozen ends without a change by a user: the end of the
	// RolloutFreeze, or the start of the next window. If no such time exists, FrozenUntil is nil.
	FrozenUntil *time.Time `json:"frozenUntil,omitempty"`
	// ProgressDue is set while the ProgressDeadline of the step applies. In this case, Took is the time that
	// the worker needed for the activity. If the run waited much longer than Took, the run assumes an outage.
	ProgressDue bool          `json:"progressDue,omitempty"`
	Took        time.Duration `json:"took,omitempty"`
	// Again is the time after which a pod that is not ready may count as failed, or after which a
	// PodDisruptionBudget may allow an upgrade. 0 means that no such pod exists.
	Again time.Duration `json:"again,omitempty"`
}

// AwaitMigrationInput is the input of the activity AwaitMigration, which waits for pods whose
// standby twins can be reset.
type AwaitMigrationInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Written    []WrittenPod `json:"written,omitempty"`
	Rejected   Fingerprints `json:"refused,omitempty"`
	// Upgrading is set while an upgrade batch is running, because the batch adds migrating pods.
	Upgrading bool `json:"upgrading,omitempty"`
}

// AwaitMigrationResult contains the pods whose standby twins can be reset. Pending counts all
// migrating pods.
type AwaitMigrationResult struct {
	Pods    []PodReference `json:"pods,omitempty"`
	Pending int            `json:"pending"`
}

// ResetBatchInput contains the pods whose standby twins the batch resets. The batch also resets the standby
// twins of other pods whose hot-upgrade migration has ended, except for the pods in Rejected.
type ResetBatchInput struct {
	SidecarSet SetReference   `json:"sidecarSet"`
	Pods       []PodReference `json:"pods"`
	Rejected   Fingerprints   `json:"refused,omitempty"`
	// Upgrading is set while an upgrade batch is running, because the upgrade batch adds migrating pods.
	Upgrading bool `json:"upgrading,omitempty"`
	// Run is the id of the run. The run must hold the Lease of the SidecarSet. Runs of earlier releases set no
	// Run, and reset pods without the Lease.
	Run string `json:"run,omitempty"`
}

// ResetBatchResult is the result of a batch that resets standby twins.
type ResetBatchResult struct {
	Reset    int           `json:"reset"`
	Skipped  int           `json:"skipped,omitempty"`
	Rejected []RejectedPod `json:"failed,omitempty"`
}

// WriteUpgradableConditionsInput contains the pods whose condition SidecarSetUpgradable the
// activity writes.
type WriteUpgradableConditionsInput struct {
	SidecarSet SetReference   `json:"sidecarSet"`
	Generation int64          `json:"generation"`
	Pods       []PodReference `json:"pods"`
}

// WriteUpgradableConditionsResult names the pods whose condition was written.
type WriteUpgradableConditionsResult struct {
	Written  []WrittenPod  `json:"written,omitempty"`
	Rejected []RejectedPod `json:"failed,omitempty"`
}

// UpgradeBatchInput contains the pods of a batch. The batch upgrades Pods at once, and Queued in order, as
// slots are released. The batch upgrades only these pods.
type UpgradeBatchInput struct {
	SidecarSet SetReference  `json:"sidecarSet"`
	Generation int64         `json:"generation"`
	Pods       []SelectedPod `json:"pods"`
	Queued     []SelectedPod `json:"reserve,omitempty"`
	// Rejected has the same meaning as in NextBatchInput.
	Rejected Rejected `json:"refused,omitzero"`
	// Written contains the writes that the cache must show before the batch writes any pod.
	Written []WrittenPod `json:"written,omitempty"`
	// Run is the id of the run. The run must hold the Lease of the SidecarSet.
	Run string `json:"run,omitempty"`
	// Stage limits the pods that the batch upgrades. Stage is nil without a RolloutPolicy.
	Stage *Stage `json:"stage,omitempty"`
}

// UpgradeBatchResult contains the result for each pod of a batch. A pod is written, rejected or skipped. A
// pod is skipped if the pod was deleted, or has changed since the plan.
type UpgradeBatchResult struct {
	Written  []WrittenPod  `json:"written,omitempty"`
	Skipped  int           `json:"skipped,omitempty"`
	Rejected []RejectedPod `json:"failed,omitempty"`
	// Stopped is the reason why the write gate stopped the batch early, such as a new generation or the loss of
	// the Lease.
	Stopped string `json:"stopped,omitempty"`
	// Frozen is set if a RolloutFreeze, or the end of a window, stopped the batch.
	Frozen bool `json:"frozen,omitempty"`
	// Failing is set if the batch stopped because the rollout has failed, for example because the
	// failed pods exceed the limit of the RolloutPolicy.
	Failing bool `json:"failing,omitempty"`
	// Quiet is set if no pod was upgraded for a while before the batch ended.
	Quiet bool `json:"quiet,omitempty"`
	// Limited is set if the batch waited for the cluster-wide limit at any time. Took is the time that the
	// worker needed for the activity. Limited and Took are set only with a ProgressDeadline.
	Limited bool          `json:"limited,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
}

// RejectedPod is a pod whose write was rejected.
type RejectedPod struct {
	PodReference
	Reason string `json:"reason"`
}

// The workflow and the activities depend on these timings.
const (
	// NextBatchPoll limits the time for which NextBatch waits for pods to upgrade, or for a change of the
	// phase.
	NextBatchPoll = 5 * time.Minute
	// UpgradeBatchLimit limits the time of one batch, including throttling by the API server.
	UpgradeBatchLimit = 10 * time.Minute
	// HeartbeatTimeout is the time without a heartbeat after which Temporal assumes that the worker of an
	// activity is lost.
	HeartbeatTimeout = 10 * time.Second
)
