package protocol

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Names registered with Temporal. They are written out so that a Go rename
// breaks no history.
const (
	RolloutWorkflow                   = "Rollout"
	NextBatchActivity                 = "NextBatch"
	UpgradeBatchActivity              = "UpgradeBatch"
	AwaitMigrationActivity            = "AwaitMigration"
	ResetBatchActivity                = "ResetBatch"
	WriteUpgradableConditionsActivity = "MarkPods"
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

// WorkflowID is the id of every run of a SidecarSet. Temporal keeps at most one run
// of an id open, so two generations never roll out at once.
func WorkflowID(name string, uid types.UID) string {
	return fmt.Sprintf("sidecarset/%s/%s", name, uid)
}

// WriteTaskQueue is the task queue of the activities that write pods. Workflow tasks
// and activities that only read have the other one, so neither waits for the other.
func WriteTaskQueue(taskQueue string) string { return taskQueue + "/write" }

// SetReference names a SidecarSet object: one that is recreated under the same name
// has another uid.
type SetReference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// PodReference names a pod object, likewise.
type PodReference struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

func (p PodReference) String() string { return p.Namespace + "/" + p.Name }

// WrittenPod is a pod after a write. Without a resourceVersion, the result of the
// write is unknown.
type WrittenPod struct {
	PodReference
	ResourceVersion string `json:"resourceVersion"`
}

// SelectedPod is a pod that a batch shall upgrade.
type SelectedPod struct {
	PodReference
	// Unready is set if the pod needs no slot of maxUnavailable because it was not
	// ready. It is not upgraded once it is ready.
	Unready bool `json:"unready,omitempty"`
}

// Phase of a run, also its search attribute RolloutPhase. As an attribute, Waiting
// means that the run sleeps until a signal or its timer.
type Phase string

// Phases. The last five are ends of a run.
const (
	PhaseProgressing      Phase = "Progressing"
	PhaseWaiting          Phase = "Waiting"
	PhasePaused           Phase = "Paused"
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

// Counts of a SidecarSet's pods in the newest plan.
type Counts struct {
	Matched      int `json:"matched"`
	Updated      int `json:"updated"`
	Ready        int `json:"ready"`
	UpdatedReady int `json:"updatedReady"`
	// Unavailable pods are so because of an upgrade.
	Unavailable int `json:"unavailable"`
	// Converging pods were upgraded to this version and are not ready yet.
	Converging int `json:"settling"`
	// Remaining pods are to be upgraded by this run.
	Remaining int `json:"remaining"`
	// NotUpgradable pods differ in more than images.
	NotUpgradable int `json:"notUpgradable"`
	// Migrating pods have a standby twin that is yet to be reset. The standby twins
	// of Migrated ones, which Migrating includes, can be reset now.
	Migrating int `json:"migrating,omitempty"`
	Migrated  int `json:"migrated,omitempty"`
}

// RolloutInput starts a run, or carries one over a continue-as-new.
type RolloutInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	// Pause is set while the run is paused by signal or update.
	Pause *Pause `json:"hold,omitempty"`
	// Progress of the same generation before a continue-as-new.
	Progress Progress `json:"progress,omitzero"`
}

// Progress is the state of a run that outlives a continue-as-new.
type Progress struct {
	Batches        int `json:"batches,omitempty"`
	Upgraded       int `json:"upgraded,omitempty"`
	RejectedWrites int `json:"failed,omitempty"`
	// Written are the pods of the newest batch. The next plan waits until the cache
	// shows these writes, or that the pods are gone.
	Written []WrittenPod `json:"written,omitempty"`
	// Migrating is set while standby twins may be left to reset.
	Migrating bool `json:"migrating,omitempty"`
	// Run is the id of the first run of the chain, which holds the SidecarSet's Lease.
	Run string `json:"run,omitempty"`
	// Rejected are the pods whose upgrade was rejected, and RejectedConditions those
	// whose condition SidecarSetUpgradable was.
	Rejected           Rejections `json:"refused,omitzero"`
	RejectedConditions Rejections `json:"refusedConditions,omitzero"`
}

// RolloutResult is the result of a run.
type RolloutResult struct {
	Phase    Phase  `json:"phase"`
	Message  string `json:"message"`
	Counts   Counts `json:"counts"`
	Batches  int    `json:"batches"`
	Upgraded int    `json:"upgraded"`
}

// GenerationInput is the payload of the signal generation. A run of an older
// generation continues as new with it; a sleeping run of this generation plans again.
type GenerationInput struct {
	Generation int64 `json:"generation"`
}

// Pause is the payload of pause and resume, as signals and as updates. The memo
// PauseMemo has the pause in effect, if any; otherwise ResumeMemo has the resume that
// ended the last one.
type Pause struct {
	// By is the user that sent it.
	By     string `json:"who,omitempty"`
	Reason string `json:"why,omitempty"`
	// Sent is set in an update that follows a signal of the same name, and only asks
	// for the answer. An update that took effect by itself could do so after a later
	// signal, once its sender no longer waits.
	Sent bool `json:"sent,omitempty"`
}

// Details returns the user and the reason, as far as both are known, for the end of a
// sentence.
func (p Pause) Details() (text string) {
	if p.By != "" {
		text = " from " + p.By
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
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
	// Since is when the run started with this generation.
	Since time.Time `json:"since"`
}

// NextBatchInput asks for the next pods to upgrade.
type NextBatchInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	Written    []WrittenPod `json:"written,omitempty"`
	// Rejected are pods whose writes were rejected in earlier batches of this run.
	Rejected Rejected `json:"refused,omitzero"`
	// RejectedConditions are pods whose condition was rejected.
	RejectedConditions Rejected `json:"refusedConditions,omitzero"`
	// SkipTrueConditions skips TrueConditions of the result.
	SkipTrueConditions bool `json:"skipLateMarks,omitempty"`
	// Quiet is set if no pod has been upgraded for a while.
	Quiet bool `json:"quiet,omitempty"`
	// Paused asks only whether there is still something to pause.
	Paused bool `json:"held,omitempty"`
	// MigrationIdle is set if the run resets no standby twin until this result, or a
	// signal, reports one that can be reset.
	MigrationIdle bool `json:"migrationIdle,omitempty"`
	// Run holds the SidecarSet's Lease while it upgrades pods, and releases it when
	// nothing is left to do.
	Run string `json:"run,omitempty"`
}

// NextBatchResult has the selected pods. Without any, Message gives the reason.
type NextBatchResult struct {
	Phase   Phase         `json:"phase"`
	Message string        `json:"message"`
	Pods    []SelectedPod `json:"pods,omitempty"`
	// Queued pods follow Pods, in order, as slots are released.
	Queued []SelectedPod `json:"reserve,omitempty"`
	Counts Counts        `json:"counts"`
	// Generation is set if the SidecarSet has another generation than the input. It is
	// an older one if a signal named a generation that the cluster never had, or if
	// the cluster was restored.
	Generation int64 `json:"generation,omitempty"`
	// Hot is set if standby twins must be reset after an upgrade.
	Hot bool `json:"hot,omitempty"`
	// FalseConditions are pods whose condition SidecarSetUpgradable must be written
	// before anything else; TrueConditions are those whose condition may be written
	// beside the batches.
	FalseConditions []PodReference `json:"marks,omitempty"`
	TrueConditions  []PodReference `json:"lateMarks,omitempty"`
	// Gone are rejected pods that are not to be upgraded any more.
	Gone Fingerprints `json:"gone,omitempty"`
	// GoneConditions are pods whose condition was rejected, and is not due any more.
	GoneConditions Fingerprints `json:"goneConditions,omitempty"`
}

// AwaitMigrationInput asks for pods whose standby twins can be reset.
type AwaitMigrationInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Written    []WrittenPod `json:"written,omitempty"`
	Rejected   Fingerprints `json:"refused,omitempty"`
	// Upgrading is set while an upgrade batch is running, so pods will be migrating.
	Upgrading bool `json:"upgrading,omitempty"`
}

// AwaitMigrationResult names these pods; Pending counts all that are migrating.
type AwaitMigrationResult struct {
	Pods    []PodReference `json:"pods,omitempty"`
	Pending int            `json:"pending"`
}

// ResetBatchInput names the pods whose standby twins are reset. Other pods follow
// once they have migrated, except rejected ones.
type ResetBatchInput struct {
	SidecarSet SetReference   `json:"sidecarSet"`
	Pods       []PodReference `json:"pods"`
	Rejected   Fingerprints   `json:"refused,omitempty"`
	// Upgrading is set while an upgrade batch is running, so more pods will be migrating.
	Upgrading bool `json:"upgrading,omitempty"`
}

// ResetBatchResult is the result of a ResetBatchInput.
type ResetBatchResult struct {
	Reset    int           `json:"reset"`
	Skipped  int           `json:"skipped,omitempty"`
	Rejected []RejectedPod `json:"failed,omitempty"`
}

// WriteUpgradableConditionsInput names pods whose condition SidecarSetUpgradable
// is written.
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

// UpgradeBatchInput names the pods to upgrade: Pods at once, and Queued in order as
// slots are released. No other pod is upgraded.
type UpgradeBatchInput struct {
	SidecarSet SetReference  `json:"sidecarSet"`
	Generation int64         `json:"generation"`
	Pods       []SelectedPod `json:"pods"`
	Queued     []SelectedPod `json:"reserve,omitempty"`
	// Rejected is that of NextBatchInput.
	Rejected Rejected `json:"refused,omitzero"`
	// Written pods must show in the cache before any pod is written.
	Written []WrittenPod `json:"written,omitempty"`
	// Run must hold the SidecarSet's Lease.
	Run string `json:"run,omitempty"`
}

// UpgradeBatchResult has the result of each pod of a batch: written, rejected, or
// skipped because the pod is gone or has changed since it was read.
type UpgradeBatchResult struct {
	Written  []WrittenPod  `json:"written,omitempty"`
	Skipped  int           `json:"skipped,omitempty"`
	Rejected []RejectedPod `json:"failed,omitempty"`
	// Stopped is the reason for which the fence stopped the batch before its end.
	Stopped string `json:"stopped,omitempty"`
	// Quiet is set if no pod was upgraded for a while before the end.
	Quiet bool `json:"quiet,omitempty"`
}

// RejectedPod is a pod whose write was rejected.
type RejectedPod struct {
	PodReference
	Reason string `json:"reason"`
}

// Timings that the workflow and its activities agree on.
const (
	// NextBatchPoll is how long NextBatch waits for something to do.
	NextBatchPoll = 5 * time.Minute
	// UpgradeBatchLimit limits the time of one batch, throttling by the API server
	// included.
	UpgradeBatchLimit = 10 * time.Minute
	// HeartbeatTimeout is the time without a heartbeat after which a worker counts as
	// lost.
	HeartbeatTimeout = 10 * time.Second
)
