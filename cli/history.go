package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/temporal/codec"
)

func newHistory(s *shared) *cobra.Command {
	var o output.Flag
	var limit int
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "List the revisions and runs of a set, and who changed it",
		Long: "List the revisions and runs of a set, and who changed it: field managers as the API server remembers them, and\n" +
			"those who paused and resumed, as the listed runs tell.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return fmt.Errorf("--runs must be positive")
			}
			model, err := s.history(cmd.Context(), args[0], limit)
			if err != nil {
				return err
			}
			return s.print(o, model)
		},
	}
	o.Add(cmd, output.JSON, output.YAML)
	cmd.Flags().IntVar(&limit, "runs", 10, "how many runs to list, the newest first")
	return cmd
}

func (s *shared) history(ctx context.Context, name string, limit int) (*view.History, error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	set, err := c.set(ctx, name)
	if err != nil {
		return nil, err
	}
	revisions, err := c.revisions(ctx, set)
	if err != nil {
		return nil, err
	}
	pods, err := c.pods(ctx, set, "")
	if err != nil {
		return nil, err
	}
	told := s.runsOf(ctx, set, limit)
	model, err := view.NewHistory(set, revisions, pods, told.rows, told.changes)
	if err != nil {
		return nil, err
	}
	model.RunsUnknown, model.ChangesUnknown = told.rowsUnknown, told.changesUnknown
	return model, nil
}

// told is what the runs of a set say, and why they do not say all.
type told struct {
	rows                        []view.RunRow
	changes                     []view.Change
	rowsUnknown, changesUnknown string
}

func (s *shared) runsOf(ctx context.Context, set *v1alpha1.SidecarSet, limit int) (all told) {
	r, err := s.connect()
	if err != nil {
		return told{rowsUnknown: err.Error()}
	}
	defer r.Close()
	if all.rows, err = r.list(ctx, set, limit); err != nil {
		return told{rowsUnknown: err.Error()}
	}
	for _, row := range all.rows {
		changes, unreadable, err := r.changes(ctx, set, row.RunID)
		all.changes = append(all.changes, changes...)
		if why := cmp.Or(err, unreadable); why != nil && all.changesUnknown == "" {
			all.changesUnknown = why.Error()
		}
		if err != nil {
			// The next one would be waited for as long.
			break
		}
	}
	return all
}

func (r *runs) list(ctx context.Context, set *v1alpha1.SidecarSet, limit int) ([]view.RunRow, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	listed, err := r.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.options.Namespace, PageSize: int32(limit), Query: fmt.Sprintf("WorkflowId = '%s'", protocol.WorkflowID(set.Name, set.UID)),
	})
	if err != nil {
		return nil, r.explain(err)
	}
	var rows []view.RunRow
	for _, run := range listed.Executions[:min(limit, len(listed.Executions))] {
		rows = append(rows, rowOf(run))
	}
	return rows, nil
}

func rowOf(run *workflow.WorkflowExecutionInfo) view.RunRow {
	row := view.RunRow{RunID: run.Execution.RunId, Status: run.Status.String(), Started: run.StartTime.AsTime()}
	if run.CloseTime != nil {
		ended := run.CloseTime.AsTime()
		row.Ended = &ended
	}
	fields := run.GetSearchAttributes().GetIndexedFields()
	// Attributes that were removed since are left out.
	_ = converter.GetDefaultDataConverter().FromPayload(fields[protocol.GenerationAttribute], &row.Generation)
	_ = converter.GetDefaultDataConverter().FromPayload(fields[protocol.RolloutPhaseAttribute], &row.Phase)
	return row
}

// changes are the pauses and resumes that a run was sent, as signals or updates.
// unreadable is why it is not known of all who sent them.
func (r *runs) changes(ctx context.Context, set *v1alpha1.SidecarSet, run string) (found []view.Change, unreadable, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err = r.events(ctx, protocol.WorkflowID(set.Name, set.UID), run, func(event *history.HistoryEvent) {
		what, by, identity := holdOf(event)
		if what != protocol.PauseSignal && what != protocol.ResumeSignal {
			return
		}
		var hold protocol.Pause
		// One that was sent by hand may hold anything.
		if err := r.options.Codec.DataConverter().FromPayloads(by, &hold); err != nil && slices.ContainsFunc(by.GetPayloads(), codec.IsEncrypted) {
			unreadable = fmt.Errorf("who sent %s to run %s, and why: %w; %s", what, run, err, needsKeys)
		}
		if hold.Sent {
			return // its signal was found
		}
		found = append(found, view.Change{At: event.EventTime.AsTime(), Who: cmp.Or(hold.By, identity), What: what + "d", Why: hold.Reason})
	})
	return found, unreadable, err
}

// holdOf returns the name and the payload of the signal or update that an event is about.
func holdOf(event *history.HistoryEvent) (name string, payload *common.Payloads, identity string) {
	if signal := event.GetWorkflowExecutionSignaledEventAttributes(); signal != nil {
		return signal.SignalName, signal.Input, signal.Identity
	}
	if update := event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest(); update != nil {
		return update.GetInput().GetName(), update.GetInput().GetArgs(), update.GetMeta().GetIdentity()
	}
	return "", nil, ""
}
