package runs

import (
	"fmt"
	"slices"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// firstTask is the length of a history at the end of the run's first task:
// started; task scheduled, started, completed.
const firstTask = 4

// Run is the newest run of a SidecarSet, as Temporal describes it.
type Run struct {
	// Status is unspecified if Temporal knows of no run.
	Status enums.WorkflowExecutionStatus
	// Generation that the run works on; zero if its search attribute is missing.
	Generation int64
	Phase      protocol.Phase
	// Pause is the pause in effect, and Resumed says by whom the last one was ended.
	Pause, Resumed *protocol.Pause
	// Unreadable is set if the run has a pause that cannot be decoded.
	Unreadable error
	// Events is the length of its history.
	Events int64
	// Task is the pending workflow task, if any.
	Task       *workflow.PendingWorkflowTaskInfo
	Activities []*workflow.PendingActivityInfo
	// pinned is the version of the workers that the run is pinned to, if any.
	pinned *version
}

// Open reports whether the run has not ended.
func (r *Run) Open() bool { return r.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING }

// Completed reports whether the run ended because it had nothing left to do, and was not
// terminated.
func (r *Run) Completed() bool { return r.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED }

// TaskPending reports whether the run is about to plan by itself. A run that continued
// another as new may wait for its first task for a second, and shows until then the
// phase of that other.
func (r *Run) TaskPending() bool { return r.Task != nil || r.Events < firstTask }

// WaitsForSignal reports whether only a signal makes the run plan again. Resets of
// standby twins do not, and may be in progress meanwhile.
func (r *Run) WaitsForSignal() bool {
	waits := r.Phase == protocol.PhaseWaiting || r.Phase == protocol.PhasePaused
	return r.Open() && waits && !r.TaskPending() && !slices.ContainsFunc(r.Activities, func(a *workflow.PendingActivityInfo) bool {
		return !ofMigration(a)
	})
}

// Resets reports whether the run waits for standby twins to reset, or resets them.
func (r *Run) Resets() bool { return slices.ContainsFunc(r.Activities, ofMigration) }

func ofMigration(activity *workflow.PendingActivityInfo) bool {
	name := activity.GetActivityType().GetName()
	return name == protocol.AwaitMigrationActivity || name == protocol.ResetBatchActivity
}

// GenerationMismatch reports whether the run works on another generation than that of the
// SidecarSet: a signal was mistyped, or the cluster or Temporal was restored from a backup.
func (r *Run) GenerationMismatch(set *v1alpha1.SidecarSet) bool {
	return r.Generation != 0 && r.Generation != set.Generation
}

// Read reads a description. Search attributes are never encrypted. A missing payload leaves
// its field as it is.
func Read(payloads converter.DataConverter, info *workflow.WorkflowExecutionInfo) (*Run, error) {
	r := &Run{Status: info.GetStatus(), Events: info.GetHistoryLength(), pinned: pinnedVersion(info.GetVersioningInfo())}
	fields, memo := info.GetSearchAttributes().GetIndexedFields(), info.GetMemo().GetFields()
	for name, into := range map[string]any{protocol.RolloutPhaseAttribute: &r.Phase, protocol.GenerationAttribute: &r.Generation} {
		if err := converter.GetDefaultDataConverter().FromPayload(fields[name], into); err != nil {
			return nil, fmt.Errorf("search attribute %s: %w", name, err)
		}
	}
	if err := payloads.FromPayload(memo[protocol.PauseMemo], &r.Pause); err != nil {
		r.Unreadable = fmt.Errorf("memo %s: %w", protocol.PauseMemo, err)
	}
	// Without it, an event lacks a name and a reason.
	_ = payloads.FromPayload(memo[protocol.ResumeMemo], &r.Resumed)
	return r, nil
}
