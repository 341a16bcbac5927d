package operator

import (
	"fmt"
	"slices"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// firstTask is the length of a history at the end of the run's first task:
// started; task scheduled, started, completed.
const firstTask = 4

// run is the newest run of a set, as Temporal describes it.
type run struct {
	// status is unspecified if Temporal knows of no run.
	status enums.WorkflowExecutionStatus
	// generation that the run works on; zero if its search attribute is missing.
	generation int64
	phase      protocol.Phase
	// hold is read from the run's memo, and resumed, who ended the last one.
	hold, resumed *protocol.Hold
	// unreadable is why the hold that there is cannot be read.
	unreadable error
	// events is the length of its history.
	events int64
	// task is the pending workflow task, if any.
	task       *workflow.PendingWorkflowTaskInfo
	activities []*workflow.PendingActivityInfo
	// pinned is the version of the workers that the run is pinned to, if any.
	pinned *version
}

func (r *run) open() bool { return r.status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING }

// taskPending reports whether the run is about to plan by itself. A run that continued
// another as new may wait for its first task for a second, and shows until then the
// phase of that other.
func (r *run) taskPending() bool { return r.task != nil || r.events < firstTask }

// completed reports whether the run ended because it had nothing left to do, and
// not because somebody ended it.
func (r *run) completed() bool { return r.status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED }

// waitsForSignal reports whether nothing but a signal makes the run plan again. Resets of
// standby twins go on beside that, and do not.
func (r *run) waitsForSignal() bool {
	waits := r.phase == protocol.PhaseWaiting || r.phase == protocol.PhasePaused
	return r.open() && waits && !r.taskPending() && !slices.ContainsFunc(r.activities, func(a *workflow.PendingActivityInfo) bool {
		return !ofMigration(a)
	})
}

// resets reports whether the run looks for standby twins to reset, or resets them.
func (r *run) resets() bool { return slices.ContainsFunc(r.activities, ofMigration) }

func ofMigration(activity *workflow.PendingActivityInfo) bool {
	name := activity.GetActivityType().GetName()
	return name == protocol.AwaitMigrationActivity || name == protocol.ResetBatchActivity
}

// neededBy reports whether a run that waits for a signal would do something if it were
// woken: end, upgrade pods unless it is held, or reset standby twins.
func (r *run) neededBy(o *observation) bool {
	return r.hold == nil && (len(o.plan.Pods) > 0 || !o.unfinished()) || o.plan.Counts.Migrated > 0 && !r.resets()
}

// generationMismatch reports whether the run works on another generation than the
// set's: a signal was mistyped, or the cluster or Temporal was restored from a backup.
func (r *run) generationMismatch(set *v1alpha1.SidecarSet) bool {
	return r.generation != 0 && r.generation != set.Generation
}

// readRun reads a description. Search attributes are never encrypted.
func readRun(payloads converter.DataConverter, info *workflow.WorkflowExecutionInfo) (*run, error) {
	r := &run{status: info.GetStatus(), events: info.GetHistoryLength(), pinned: pinnedVersion(info.GetVersioningInfo())}
	fields := info.GetSearchAttributes().GetIndexedFields()
	if err := decode(converter.GetDefaultDataConverter(), fields[protocol.RolloutPhaseAttribute], &r.phase); err != nil {
		return nil, fmt.Errorf("search attribute %s: %w", protocol.RolloutPhaseAttribute, err)
	}
	if err := decode(converter.GetDefaultDataConverter(), fields[protocol.GenerationAttribute], &r.generation); err != nil {
		return nil, fmt.Errorf("search attribute %s: %w", protocol.GenerationAttribute, err)
	}
	if err := decode(payloads, info.GetMemo().GetFields()[protocol.HoldMemo], &r.hold); err != nil {
		r.unreadable = fmt.Errorf("memo %s: %w", protocol.HoldMemo, err)
	}
	// An event has fewer words without it.
	_ = decode(payloads, info.GetMemo().GetFields()[protocol.ResumeMemo], &r.resumed)
	return r, nil
}

// decode leaves into as it is when there is nothing to decode.
func decode(payloads converter.DataConverter, payload *common.Payload, into any) error {
	if payload == nil {
		return nil
	}
	return payloads.FromPayload(payload, into)
}
