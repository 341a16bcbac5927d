package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	sdk "go.temporal.io/sdk/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// readTimeout limits a read of Temporal. After a timeout, the output omits the data of Temporal.
	readTimeout = 3 * time.Second
	// maxAskedRuns is the maximum number of runs that kubectl sidecarset list queries, and of pods that waitingPods
	// reads.
	maxAskedRuns = 20
	// updateTimeout limits an update of a run, such as a pause or an approval.
	updateTimeout = 15 * time.Second
)

const (
	// otherTemporal is the remedy for a run that is not found.
	otherTemporal = "name it with --temporal-address and --temporal-namespace, or TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE"
	// needsKeys is the remedy for payloads that cannot be read.
	needsKeys = "if the run is encrypted, name the keys with --temporal-payload-key-dir"
)

// errUnread is the error of an update that Temporal may have received, but that the run did not confirm.
var errUnread = errors.New("not confirmed: " + protocol.NoAnswer)

// errNotResponding is the error of a query that no worker answers although Temporal is available.
var errNotResponding = errors.New(protocol.NoAnswer)

// runs reads and updates the runs of rollouts in Temporal.
type runs struct {
	sdk.Client
	options temporal.Options
}

// connect returns a client of the runs. connect does not wait for Temporal. The caller closes the client.
func (s *shared) connect() (*runs, error) {
	options, err := s.temporal.ProcessOptions("kubectl", s.keys)
	if err != nil {
		return nil, err
	}
	c, err := temporal.NewLazyClient(options, logr.Discard())
	return &runs{c, options}, err
}

func (r *runs) endpoint() string {
	return fmt.Sprintf("Temporal at %s, namespace %s", r.options.Address, r.options.Namespace)
}

// explain adds the endpoint and, if a remedy is known, the remedy to err.
func (r *runs) explain(err error) error {
	if cause, remedy := temporal.ExplainCall(err); cause != "" {
		return &explainedError{fmt.Sprintf("%s: %s (%s)", r.endpoint(), cause, remedy), err}
	}
	return fmt.Errorf("%s: %w", r.endpoint(), err)
}

// explainedError replaces the text of cause.
type explainedError struct {
	text  string
	cause error
}

func (e *explainedError) Error() string { return e.text }

func (e *explainedError) Unwrap() error { return e.cause }

// readRun reads the open run of a SidecarSet. If Temporal does not respond, the result contains the reason
// why the run is unknown.
func (s *shared) readRun(ctx context.Context, set *v1alpha1.SidecarSet) view.RunInput {
	r, err := s.connect()
	if err != nil {
		return view.RunInput{Unknown: err.Error()}
	}
	defer r.Close()
	return r.input(ctx, set)
}

// input reads the open run of a SidecarSet.
func (r *runs) input(ctx context.Context, set *v1alpha1.SidecarSet) view.RunInput {
	status, err := r.status(ctx, set)
	in := runInput(status, err)
	if err != nil {
		return in
	}
	in.Temporal = r.endpoint()
	if status != nil && status.RejectedWrites > 0 {
		if in.Rejected, err = r.rejected(ctx, set); err != nil {
			in.Unknown = err.Error()
		}
	}
	return in
}

// askRuns queries the runs of unfinished rollouts. askRuns connects to Temporal only if there is an
// unfinished rollout. If the flags of Temporal are invalid, askRuns returns nil, because the command list
// also works without Temporal.
func (s *shared) askRuns(ctx context.Context, all []v1alpha1.SidecarSet) map[string]view.RunInput {
	if !slices.ContainsFunc(all, func(set v1alpha1.SidecarSet) bool { return view.Unfinished(&set) }) {
		return nil
	}
	r, err := s.connect()
	if err != nil {
		return nil
	}
	defer r.Close()
	return r.answers(ctx, all)
}

// answers queries the runs of the SidecarSets whose status shows an unfinished rollout, and returns the
// answers by the names of the SidecarSets. answers queries the first maxAskedRuns of these runs at the same
// time.
func (r *runs) answers(ctx context.Context, all []v1alpha1.SidecarSet) map[string]view.RunInput {
	found := map[string]view.RunInput{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	left := maxAskedRuns
	for i := range all {
		set := &all[i]
		if !view.Unfinished(set) || left == 0 {
			continue
		}
		left--
		asked.Go(func() {
			status, err := r.status(ctx, set)
			mu.Lock()
			defer mu.Unlock()
			found[set.Name] = runInput(status, err)
		})
	}
	asked.Wait()
	return found
}

// runInput converts the result of a query to a RunInput, without the endpoint and the rejected pods.
func runInput(status *protocol.RolloutStatus, err error) view.RunInput {
	if err != nil {
		return view.RunInput{Unknown: err.Error(), NotResponding: errors.Is(err, errNotResponding), Unreachable: temporal.IsUnreachable(err)}
	}
	return view.RunInput{Status: status}
}

// status queries the open run of a SidecarSet. If no run is open, status returns nil.
func (r *runs) status(ctx context.Context, set *v1alpha1.SidecarSet) (*protocol.RolloutStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ctx, cause := temporal.NoteThrottling(ctx)
	id := protocol.WorkflowID(set.Name, set.UID)
	described, err := r.DescribeWorkflowExecution(ctx, id, "")
	if err == nil && described.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING || temporal.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, r.explain(cause(err))
	}
	answer, err := r.QueryWorkflow(ctx, id, "", protocol.StatusQuery)
	switch err = cause(err); {
	case temporal.IsNotFound(err):
		return nil, nil
	case temporal.IsSilent(ctx, err):
		return nil, errNotResponding
	case err != nil:
		return nil, r.explain(err)
	}
	var status protocol.RolloutStatus
	if err := answer.Get(&status); err != nil {
		return nil, fmt.Errorf("read the answer of run %s: %w; %s", id, err, needsKeys)
	}
	return &status, nil
}

// events calls each for every event of run, in order. If run is empty, events reads the newest run.
func (r *runs) events(ctx context.Context, set *v1alpha1.SidecarSet, run string, each func(*history.HistoryEvent)) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all := r.GetWorkflowHistory(ctx, protocol.WorkflowID(set.Name, set.UID), run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		event, err := all.Next()
		if err != nil {
			return r.explain(err)
		}
		each(event)
	}
	return nil
}

// rejected returns the pods whose writes the API server rejected, each with the newest reason. rejected omits
// a pod if a later write of the pod succeeded.
func (r *runs) rejected(ctx context.Context, set *v1alpha1.SidecarSet) ([]protocol.RejectedPod, error) {
	reasons := map[protocol.PodReference]string{}
	err := r.events(ctx, set, "", func(event *history.HistoryEvent) {
		var result protocol.UpgradeBatchResult
		payloads := event.GetActivityTaskCompletedEventAttributes().GetResult()
		if payloads == nil || r.options.Codec.DataConverter().FromPayloads(payloads, &result) != nil {
			return
		}
		for _, pod := range result.Written {
			delete(reasons, pod.PodReference)
		}
		for _, pod := range result.Rejected {
			reasons[pod.PodReference] = pod.Reason
		}
	})
	var rejected []protocol.RejectedPod
	for pod, reason := range reasons {
		rejected = append(rejected, protocol.RejectedPod{PodReference: pod, Reason: reason})
	}
	return rejected, err
}

// update sends pause as a signal, and then as an update with the same name, and returns the result of the
// update. The signal comes first, because Temporal keeps the order of signals even if clients do not wait for
// the result (SPEC §7.1).
func (r *runs) update(ctx context.Context, set *v1alpha1.SidecarSet, name string, pause protocol.Pause) (protocol.PauseResult, error) {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	ctx, cause := temporal.NoteThrottling(ctx)
	var result protocol.PauseResult
	id := protocol.WorkflowID(set.Name, set.UID)
	if err := r.SignalWorkflow(ctx, id, "", name, pause); err != nil {
		return result, cause(err)
	}
	pause.Sent = true
	err := r.await(ctx, sdk.UpdateWorkflowOptions{WorkflowID: id, UpdateName: name, Args: []any{pause}}, &result)
	if temporal.IsNotFound(err) && name == protocol.ResumeUpdate {
		return protocol.PauseResult{Message: "resumed"}, nil // The run has completed, so there is nothing to resume.
	}
	return result, err
}

// await sends an update, and waits for the result of the update. If the run may still receive the update, the
// error is errUnread.
func (r *runs) await(ctx context.Context, options sdk.UpdateWorkflowOptions, result any) error {
	ctx, cause := temporal.NoteThrottling(ctx)
	err := temporal.Update(ctx, r.Client, options, result)
	if !temporal.IsUnreachable(err) {
		return err
	}
	if throttled := cause(err); !temporal.IsUnreachable(throttled) {
		return &explainedError{"not confirmed: " + r.explain(throttled).Error(), errUnread}
	}
	return errUnread // Temporal answered an earlier call, so the run may have received the update.
}
