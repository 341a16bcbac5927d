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
	HoldMemo                          = "hold"
	ResumeMemo                        = "resume"
	SidecarSetAttribute               = "SidecarSet"
	GenerationAttribute               = "SidecarSetGeneration"
	RolloutPhaseAttribute             = "RolloutPhase"
)

// WorkflowID of every run of a set. The server keeps at most one run of an id
// open, so two generations never roll out at once.
func WorkflowID(name string, uid types.UID) string {
	return fmt.Sprintf("sidecarset/%s/%s", name, uid)
}

// WriteTaskQueue is where the activities that write pods are queued, beside the
// task queue of the runs and of what only looks: neither waits for the other.
func WriteTaskQueue(taskQueue string) string { return taskQueue + "/write" }

// SetReference names a SidecarSet object: one that was made again under the same
// name has another uid.
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

// WrittenPod is a pod as it was after a write. Without a resourceVersion it may
// have been written, or not.
type WrittenPod struct {
	PodReference
	ResourceVersion string `json:"resourceVersion"`
}

// SelectedPod is a pod that a batch shall upgrade.
type SelectedPod struct {
	PodReference
	// Unready says that the pod was chosen outside the budget because it was
	// not ready; it must not be touched once it is.
	Unready bool `json:"unready,omitempty"`
}

// Phase of a run, also its search attribute RolloutPhase. As an attribute,
// Waiting means that the run sleeps until a signal comes, or it looks by itself.
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

// Counts of a set's pods, as the newest plan saw them.
type Counts struct {
	Matched      int `json:"matched"`
	Updated      int `json:"updated"`
	Ready        int `json:"ready"`
	UpdatedReady int `json:"updatedReady"`
	// Unavailable pods are so because of an upgrade.
	Unavailable int `json:"unavailable"`
	// Settling pods were upgraded to this version and are not ready yet.
	Settling int `json:"settling"`
	// Remaining pods are to be upgraded by this run.
	Remaining int `json:"remaining"`
	// NotUpgradable pods differ in more than images.
	NotUpgradable int `json:"notUpgradable"`
	// Migrating pods hold a standby twin that is yet to be reset; of these,
	// Migrated ones have taken everything else, so that it can be.
	Migrating int `json:"migrating,omitempty"`
	Migrated  int `json:"migrated,omitempty"`
}

// RolloutInput starts a run, or carries one over a continue-as-new.
type RolloutInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	// Hold is set while somebody paused the run by signal.
	Hold *Hold `json:"hold,omitempty"`
	// Progress of the same generation before a continue-as-new.
	Progress Progress `json:"progress,omitzero"`
}

// Progress is what a run has done so far.
type Progress struct {
	Batches  int `json:"batches,omitempty"`
	Upgraded int `json:"upgraded,omitempty"`
	Failed   int `json:"failed,omitempty"`
	// Written are the pods of the newest batch: no plan is made before the
	// cache that it is made from shows them (or they are gone).
	Written []WrittenPod `json:"written,omitempty"`
	// Migrating is set while standby twins may be left to reset.
	Migrating bool `json:"migrating,omitempty"`
	// Run is the first one of the chain, which holds the set's Lease.
	Run string `json:"run,omitempty"`
	// Refused pods could not be upgraded; of RefusedConditions the condition
	// SidecarSetUpgradable could not be written.
	Refused           Refusals `json:"refused,omitzero"`
	RefusedConditions Refusals `json:"refusedConditions,omitzero"`
}

// RolloutResult is what a run ends with.
type RolloutResult struct {
	Phase    Phase  `json:"phase"`
	Message  string `json:"message"`
	Counts   Counts `json:"counts"`
	Batches  int    `json:"batches"`
	Upgraded int    `json:"upgraded"`
}

// GenerationInput is the payload of the signal generation. A newer generation
// than the run's takes over; the run's own has a run that sleeps look again.
type GenerationInput struct {
	Generation int64 `json:"generation"`
}

// Hold is the payload of pause and resume, as signals and as updates: who sent
// it and why. The memo HoldMemo holds the pause that is in force, if one is, and
// ResumeMemo the resume that ended the last one, if none is.
type Hold struct {
	Who string `json:"who,omitempty"`
	Why string `json:"why,omitempty"`
	// Sent says, in an update, that a signal of the same name was sent before: the update
	// only asks for the answer. An update that takes effect itself, and whose sender waits
	// no more, may take effect after a later signal.
	Sent bool `json:"sent,omitempty"`
}

// HoldResult answers the updates pause and resume.
type HoldResult struct {
	// Held says whether the run is held now.
	Held bool `json:"held"`
	// Message says what that means for what is under way.
	Message string `json:"message"`
}

// RolloutStatus answers the query status.
type RolloutStatus struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	Phase      Phase        `json:"phase"`
	Message    string       `json:"message"`
	Hold       *Hold        `json:"hold,omitempty"`
	Counts     Counts       `json:"counts"`
	Batches    int          `json:"batches"`
	Upgraded   int          `json:"upgraded"`
	Failed     int          `json:"failed"`
	// Since is when the run took up this generation.
	Since time.Time `json:"since"`
}

// NextBatchInput asks for the next pods to upgrade.
type NextBatchInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	Written    []WrittenPod `json:"written,omitempty"`
	// Refused pods failed in earlier batches of this run.
	Refused Refused `json:"refused,omitzero"`
	// RefusedConditions are pods whose condition could not be written.
	RefusedConditions Refused `json:"refusedConditions,omitzero"`
	// SkipTrueConditions leaves conditions alone that nobody waits for.
	SkipTrueConditions bool `json:"skipLateMarks,omitempty"`
	// Quiet says that no pod has been upgraded for a while.
	Quiet bool `json:"quiet,omitempty"`
	// Held asks only whether there is still something to hold.
	Held bool `json:"held,omitempty"`
	// MigrationIdle says that the run resets no standby twin until this answer, or a
	// signal, says that one can be.
	MigrationIdle bool `json:"migrationIdle,omitempty"`
	// Run holds the set's Lease while it upgrades pods, and gives it back when
	// nothing is left to do.
	Run string `json:"run,omitempty"`
}

// NextBatchResult holds the chosen pods, or says why there are none.
type NextBatchResult struct {
	Phase   Phase         `json:"phase"`
	Message string        `json:"message"`
	Pods    []SelectedPod `json:"pods,omitempty"`
	// Reserve follows Pods, in order, as slots become free.
	Reserve []SelectedPod `json:"reserve,omitempty"`
	Counts  Counts        `json:"counts"`
	// Generation that the set has, when superseded: another than asked for. It
	// is an older one where somebody asked for one that the cluster never had,
	// or the cluster was restored.
	Generation int64 `json:"generation,omitempty"`
	// Hot sets have pods whose standby twins must be reset after an upgrade.
	Hot bool `json:"hot,omitempty"`
	// FalseConditions are pods whose condition SidecarSetUpgradable must be
	// written before anything else; TrueConditions those where it may be written
	// beside the batches.
	FalseConditions []PodReference `json:"marks,omitempty"`
	TrueConditions  []PodReference `json:"lateMarks,omitempty"`
	// Gone are refused pods that are not to be upgraded any more.
	Gone Fingerprints `json:"gone,omitempty"`
	// GoneConditions are pods whose condition could not be written, and is not due any more.
	GoneConditions Fingerprints `json:"goneConditions,omitempty"`
}

// AwaitMigrationInput asks for pods whose standby twins can be reset.
type AwaitMigrationInput struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Written    []WrittenPod `json:"written,omitempty"`
	Refused    Fingerprints `json:"refused,omitempty"`
	// Upgrading says that an upgrade batch is running: pods will be migrating.
	Upgrading bool `json:"upgrading,omitempty"`
}

// AwaitMigrationResult names them; Pending counts all that are migrating.
type AwaitMigrationResult struct {
	Pods    []PodReference `json:"pods,omitempty"`
	Pending int            `json:"pending"`
}

// ResetBatchInput names the pods whose standby twins are reset; others follow as
// they have migrated, but for those that were refused before.
type ResetBatchInput struct {
	SidecarSet SetReference   `json:"sidecarSet"`
	Pods       []PodReference `json:"pods"`
	Refused    Fingerprints   `json:"refused,omitempty"`
	// Upgrading says that an upgrade batch is running: more pods will be migrating.
	Upgrading bool `json:"upgrading,omitempty"`
}

// ResetBatchResult says what became of them.
type ResetBatchResult struct {
	Reset   int         `json:"reset"`
	Skipped int         `json:"skipped,omitempty"`
	Failed  []FailedPod `json:"failed,omitempty"`
}

// WriteUpgradableConditionsInput names pods whose condition SidecarSetUpgradable
// is written anew.
type WriteUpgradableConditionsInput struct {
	SidecarSet SetReference   `json:"sidecarSet"`
	Generation int64          `json:"generation"`
	Pods       []PodReference `json:"pods"`
}

// WriteUpgradableConditionsResult names the pods whose condition was written.
type WriteUpgradableConditionsResult struct {
	Written []WrittenPod `json:"written,omitempty"`
	Failed  []FailedPod  `json:"failed,omitempty"`
}

// UpgradeBatchInput names the pods to upgrade: Pods at once, and Reserve in
// order as slots become free. No pod outside these two lists is touched.
type UpgradeBatchInput struct {
	SidecarSet SetReference  `json:"sidecarSet"`
	Generation int64         `json:"generation"`
	Pods       []SelectedPod `json:"pods"`
	Reserve    []SelectedPod `json:"reserve,omitempty"`
	// Refused pods are those of NextBatch.
	Refused Refused `json:"refused,omitzero"`
	// Written pods must show in the cache before any pod is written.
	Written []WrittenPod `json:"written,omitempty"`
	// Run must hold the set's Lease.
	Run string `json:"run,omitempty"`
}

// UpgradeBatchResult says what became of each pod of a batch: written, gone or
// changed since it was read (skipped), or failed.
type UpgradeBatchResult struct {
	Written []WrittenPod `json:"written,omitempty"`
	Skipped int          `json:"skipped,omitempty"`
	Failed  []FailedPod  `json:"failed,omitempty"`
	// Stopped says why the fence stopped the batch before its end.
	Stopped string `json:"stopped,omitempty"`
	// Quiet says that nothing moved for a while before the end.
	Quiet bool `json:"quiet,omitempty"`
}

// FailedPod is a pod whose write was refused.
type FailedPod struct {
	PodReference
	Reason string `json:"reason"`
}

// Timings that the workflow and its activities agree on.
const (
	// NextBatchPoll is how long NextBatch waits for something to do.
	NextBatchPoll = 5 * time.Minute
	// UpgradeBatchLimit bounds one batch, API-server back-pressure included.
	UpgradeBatchLimit = 10 * time.Minute
	// HeartbeatTimeout is when a worker counts as lost.
	HeartbeatTimeout = 10 * time.Second
)
