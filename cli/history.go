package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
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
	var limit int
	cmd := s.ofSet(&cobra.Command{
		Use:   "history NAME",
		Short: "List the revisions, runs and changes of a SidecarSet",
		Long: "List the revisions and runs of a SidecarSet, and who changed the SidecarSet: the field managers that the API server\n" +
			"remembers, and the users that paused, resumed, approved, promoted, aborted and retried the listed runs.",
		Example: `  kubectl sidecarset history logs
  kubectl sidecarset history logs --runs 50                           # also pauses of older runs
  kubectl sidecarset history logs -o json | jq -r '.changes[0].who'   # the user of the newest change`,
		Args: takes(1, aSidecarSet),
	})
	cmd.Flags().IntVar(&limit, "runs", 10, "how many runs to list, the newest first")
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		if limit < 1 {
			return nil, errors.New("--runs must be positive")
		}
		v, err := c.versions(ctx, args[0])
		if err != nil {
			return nil, err
		}
		in, err := c.input(ctx, v.set, "")
		if err != nil {
			return nil, err
		}
		in.Revisions = v.sorted
		return view.NewHistory(in, s.runHistory(ctx, v.set, limit)), v.recorded()
	}, output.JSON, output.YAML)
}

func (s *shared) runHistory(ctx context.Context, set *v1alpha1.SidecarSet, limit int) (all view.RunHistory) {
	r, err := s.connect()
	if err != nil {
		return view.RunHistory{RunsUnknown: err.Error()}
	}
	defer r.Close()
	if all.Runs, err = r.list(ctx, set, limit); err != nil {
		return view.RunHistory{RunsUnknown: err.Error()}
	}
	for i := range all.Runs {
		changes, unreadable, err := r.changes(ctx, set, &all.Runs[i])
		all.Changes = append(all.Changes, changes...)
		if cause := cmp.Or(err, unreadable); cause != nil && all.ChangesUnknown == "" {
			all.ChangesUnknown = cause.Error()
		}
		var deleted *serviceerror.NotFound
		if err != nil && !errors.As(err, &deleted) {
			break // Reads of other runs would time out, too.
		}
	}
	return all
}

// runsPerPage is the number of runs in a page of the list of runs. Temporal returns at most 1000 runs in a page.
const runsPerPage = 1000

func (r *runs) list(ctx context.Context, set *v1alpha1.SidecarSet, limit int) ([]view.RunRow, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.options.Namespace, PageSize: int32(min(limit, runsPerPage)), Query: fmt.Sprintf("WorkflowId = '%s'", protocol.WorkflowID(set.Name, set.UID)),
	}
	var rows []view.RunRow
	for {
		listed, err := r.ListWorkflow(ctx, request)
		if err != nil {
			return nil, r.explain(err)
		}
		for _, run := range listed.Executions {
			rows = append(rows, r.rowOf(run))
		}
		if request.NextPageToken = listed.NextPageToken; len(rows) >= limit || len(request.NextPageToken) == 0 {
			return rows[:min(limit, len(rows))], nil
		}
	}
}

func (r *runs) rowOf(run *workflow.WorkflowExecutionInfo) view.RunRow {
	row := view.RunRow{RunID: run.Execution.RunId, Status: run.Status.String(), Started: run.StartTime.AsTime()}
	if run.CloseTime != nil {
		row.Ended = new(run.CloseTime.AsTime())
	}
	fields := run.GetSearchAttributes().GetIndexedFields()
	// If a search attribute is missing, its decoding fails, and the field of the row stays empty.
	_ = converter.GetDefaultDataConverter().FromPayload(fields[protocol.GenerationAttribute], &row.Generation)
	_ = converter.GetDefaultDataConverter().FromPayload(fields[protocol.RolloutPhaseAttribute], &row.Phase)
	return row
}

// changes returns the requests of users in the history of the run in row: pauses, resumes, approvals,
// promotions, aborts, retries and permits. changes also adds the images of the run to row. If senders and
// reasons cannot be decoded, unreadable is the cause.
func (r *runs) changes(ctx context.Context, set *v1alpha1.SidecarSet, row *view.RunRow) (found []view.Change, unreadable, err error) {
	run := row.RunID
	err = r.events(ctx, set, run, func(event *history.HistoryEvent) {
		row.Images = cmp.Or(row.Images, r.imagesIn(event, row.Generation))
		action, payload, identity := received(event)
		change := view.Change{At: event.EventTime.AsTime(), Action: pastOf(action)}
		var unread error
		switch action {
		case protocol.PauseSignal, protocol.ResumeSignal:
			var pause protocol.Pause
			if unread = r.decode(payload, &pause); pause.Sent {
				return // The history also contains the signal that was sent before this update.
			}
			change.By, change.Reason = cmp.Or(pause.By, identity), pause.Reason
		case protocol.ApproveUpdate, protocol.PromoteUpdate, protocol.AbortUpdate, protocol.RetryUpdate:
			var request protocol.StepRequest
			unread = r.decode(payload, &request)
			change.By, change.Reason = cmp.Or(request.By, identity), detailsOf(action, request, unread)
		case protocol.PermitUpdate:
			var permit protocol.Permit
			if unread = r.decode(payload, &permit); unread == nil && permit.By == "" {
				return // A permit without a user comes from the fleet.
			}
			change.By, change.Reason = cmp.Or(permit.By, identity), permit.Reason
		default:
			return
		}
		if unread != nil {
			unreadable = fmt.Errorf("the sender and the reason of %s in run %s: %w; %s", action, run, unread, needsKeys)
		}
		found = append(found, change)
	})
	return found, unreadable, err
}

// pastOf returns the past tense of an action.
func pastOf(action string) string {
	switch action {
	case protocol.AbortUpdate:
		return "aborted"
	case protocol.RetryUpdate:
		return "retried"
	case protocol.PermitUpdate:
		return "permitted"
	}
	return action + "d"
}

// decode decodes payload into into. decode returns an error only for an encrypted payload, because a signal
// of another client may have any payload.
func (r *runs) decode(payload *common.Payloads, into any) error {
	err := r.options.Codec.DataConverter().FromPayloads(payload, into)
	if err != nil && slices.ContainsFunc(payload.GetPayloads(), codec.IsEncrypted) {
		return err
	}
	return nil
}

// detailsOf returns the step of an approval or a promotion, with the reason. For an abort or a retry,
// detailsOf returns only the reason, because an abort or a retry applies to all steps.
func detailsOf(action string, request protocol.StepRequest, unread error) string {
	step := fmt.Sprintf("step %d", request.Step+1)
	switch {
	case unread != nil:
		return ""
	case action == protocol.AbortUpdate, action == protocol.RetryUpdate:
		return request.Reason
	case request.Full:
		step = "all steps"
	}
	if request.Reason != "" {
		step += ": " + request.Reason
	}
	return step
}

// imagesIn returns the images of a generation if the event is the start of the run or the signal of this
// generation. For other events, or if the payload cannot be decrypted, imagesIn returns an empty string.
func (r *runs) imagesIn(event *history.HistoryEvent, generation int64) string {
	payloads := event.GetWorkflowExecutionStartedEventAttributes().GetInput()
	if signal := event.GetWorkflowExecutionSignaledEventAttributes(); signal.GetSignalName() == protocol.GenerationSignal {
		payloads = signal.GetInput()
	}
	// The input of the run and the signal have the same JSON names for the fields of GenerationInput.
	var input protocol.GenerationInput
	if payloads == nil || r.options.Codec.DataConverter().FromPayloads(payloads, &input) != nil || input.Generation != generation {
		return ""
	}
	return input.Images
}

// received returns the name, the payload and the sender of the signal or update of an event.
func received(event *history.HistoryEvent) (name string, payload *common.Payloads, identity string) {
	if signal := event.GetWorkflowExecutionSignaledEventAttributes(); signal != nil {
		return signal.SignalName, signal.Input, signal.Identity
	}
	update := event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest()
	return update.GetInput().GetName(), update.GetInput().GetArgs(), update.GetMeta().GetIdentity()
}
