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

// firstTask is the number of events in the history after the first workflow task: the start of the run, and the
// schedule, the start and the completion of the task.
const firstTask = 4

// Run is the newest run of a SidecarSet, as Temporal describes it.
type Run struct {
	// Status is unspecified if Temporal has no run of the SidecarSet.
	Status enums.WorkflowExecutionStatus
	// WorkflowID is the workflow id of the run.
	WorkflowID string
	// Generation is the generation that the run works on. Generation is zero if the search attribute is
	// missing.
	Generation int64
	Phase      protocol.Phase
	// Pause is the current pause. Resumed is the resume that ended the last pause.
	Pause, Resumed *protocol.Pause
	// Stage is the position within the steps of a RolloutPolicy, if any.
	Stage *protocol.Stage
	// Permit is the permit of the fleet, if any.
	Permit *protocol.Permit
	// Unreadable is set if the run has a pause or a stage that cannot be decoded.
	Unreadable error
	// Events is the length of the history of the run.
	Events int64
	// Task is the pending workflow task, if any.
	Task       *workflow.PendingWorkflowTaskInfo
	Activities []*workflow.PendingActivityInfo
	// pinned is the version of the workers that the run is pinned to, if any.
	pinned *version
}

// Open reports whether the run has not ended.
func (r *Run) Open() bool { return r.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING }

// Completed reports whether the run has completed. For a run that was terminated or has failed, Completed
// returns false.
func (r *Run) Completed() bool { return r.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED }

// TaskPending reports whether a workflow task of the run is pending. After this task, the run plans again
// without a signal. After a continue-as-new, the first task of the new run may be delayed by a second. Before
// this task, the new run shows the phase of the old run.
func (r *Run) TaskPending() bool { return r.Task != nil || r.Events < firstTask }

// WaitsForSignal reports whether the run sleeps until a signal or a timer. Resets of standby twins and
// measurements of gates may be in progress.
func (r *Run) WaitsForSignal() bool {
	return r.Open() && r.waits() && !r.TaskPending() && !slices.ContainsFunc(r.Activities, func(a *workflow.PendingActivityInfo) bool {
		return !ofMigration(a) && a.GetActivityType().GetName() != protocol.MeasureGateActivity
	})
}

func (r *Run) waits() bool {
	switch r.Phase {
	case protocol.PhaseWaiting, protocol.PhasePaused, protocol.PhaseFrozen, protocol.PhaseBaking, protocol.PhaseGateRunning, protocol.PhaseAwaitingApproval, protocol.PhaseQuarantined:
		return true
	}
	return false
}

// Resets reports whether the run resets standby twins, or waits until standby twins can be reset.
func (r *Run) Resets() bool { return slices.ContainsFunc(r.Activities, ofMigration) }

func ofMigration(activity *workflow.PendingActivityInfo) bool {
	name := activity.GetActivityType().GetName()
	return name == protocol.AwaitMigrationActivity || name == protocol.ResetBatchActivity
}

// GenerationMismatch reports whether the generation of the run differs from the generation of the
// SidecarSet. The cause may be a signal with a wrong generation, or a restore of the cluster or
// of Temporal from a backup.
func (r *Run) GenerationMismatch(set *v1alpha1.SidecarSet) bool {
	return r.Generation != 0 && r.Generation != set.Generation
}

// Read returns the Run that info describes. Search attributes are never encrypted. If a payload is missing,
// the field keeps its zero value.
func Read(payloads converter.DataConverter, info *workflow.WorkflowExecutionInfo) (*Run, error) {
	r := &Run{Status: info.GetStatus(), WorkflowID: info.GetExecution().GetWorkflowId(), Events: info.GetHistoryLength(), pinned: pinnedVersion(info.GetVersioningInfo())}
	fields, memo := info.GetSearchAttributes().GetIndexedFields(), info.GetMemo().GetFields()
	for name, into := range map[string]any{protocol.RolloutPhaseAttribute: &r.Phase, protocol.GenerationAttribute: &r.Generation} {
		if err := converter.GetDefaultDataConverter().FromPayload(fields[name], into); err != nil {
			return nil, fmt.Errorf("search attribute %s: %w", name, err)
		}
	}
	if err := payloads.FromPayload(memo[protocol.PauseMemo], &r.Pause); err != nil {
		r.Unreadable = fmt.Errorf("memo %s: %w", protocol.PauseMemo, err)
	}
	if err := payloads.FromPayload(memo[protocol.StageMemo], &r.Stage); err != nil {
		r.Unreadable = fmt.Errorf("memo %s: %w", protocol.StageMemo, err)
	}
	// The error is ignored, because the fleet grants the permit again.
	_ = payloads.FromPayload(memo[protocol.PermitMemo], &r.Permit)
	if err := payloads.FromPayload(memo[protocol.ResumeMemo], &r.Resumed); err != nil {
		r.Resumed = &protocol.Pause{} // only the name and the reason in an event are missing
	}
	return r, nil
}
