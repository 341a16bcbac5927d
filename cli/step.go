package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
	sdk "go.temporal.io/sdk/client"
	sdktemporal "go.temporal.io/sdk/temporal"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/temporal"
)

// stepRequest contains the flags of approve, promote, abort and retry.
type stepRequest struct {
	protocol.StepRequest
	// number is the number of the step, from 1. 0 means the current step.
	number int
	// viaCluster is set if the command creates a RolloutAction.
	viaCluster bool
}

// action returns the spec of a RolloutAction for the update of a command.
func (r *stepRequest) action(update string) outriggerv1.RolloutActionSpec {
	spec := outriggerv1.RolloutActionSpec{Verb: outriggerv1.RolloutVerb(update), Reason: r.Reason, Full: r.Full}
	if r.number > 0 {
		spec.Step = new(intstr.FromInt32(int32(r.number)))
	}
	return spec
}

// ofStep reports whether an update is for one step.
func ofStep(update string) bool {
	return update == protocol.ApproveUpdate || update == protocol.PromoteUpdate
}

// requests makes cmd send update to the run of a SidecarSet. shownBy is the end of the help of the flag
// --reason, such as "the history shows".
func (s *shared) requests(update, shownBy string, cmd *cobra.Command) *cobra.Command {
	var request stepRequest
	cmd.Args = takes(1, aSidecarSet)
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`text` that "+shownBy)
	if update == protocol.PromoteUpdate {
		cmd.Flags().BoolVar(&request.Full, "full", false, "end all steps")
	}
	if ofStep(update) {
		cmd.Flags().IntVar(&request.number, "step", 0, "`number` of the step, and fail if another step is the current one; 0: the current step")
	}
	addViaCluster(cmd, &request.viaCluster)
	return s.prints(s.ofSet(cmd), &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		return s.request(ctx, c, args[0], update, request)
	}, output.JSON, output.YAML)
}

// request sends update to the run of the SidecarSet name, or creates a RolloutAction if the flag
// --via-cluster is set. request returns the answer.
func (s *shared) request(ctx context.Context, c *cluster, name, update string, request stepRequest) (model, error) {
	if request.number < 0 || request.number > math.MaxInt32 {
		return nil, fmt.Errorf("--step must be between 1 and %d, or 0 for the current step", math.MaxInt32)
	}
	if request.viaCluster {
		return s.act(ctx, c, name, request.action(update))
	}
	set, err := c.set(ctx, name)
	if err != nil {
		return nil, err
	}
	r, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	current := &protocol.Stage{Generation: set.Generation}
	if ofStep(update) {
		current, err = r.currentStep(ctx, set)
	} else {
		_, _, err = r.reach(ctx, set)
	}
	var result protocol.StepResult
	if err == nil {
		request.By, request.Generation, request.Step = c.user(ctx), current.Generation, current.Index
		if request.number > 0 {
			request.Step = request.number - 1
		}
		if result, err = r.updateStep(ctx, set, update, request.StepRequest); err != nil {
			err = r.explainStep(set, update, request.StepRequest, err)
		}
	}
	if err != nil {
		return nil, failedRequest(update+" "+set.Name+request.flags(), update, set.Name, err)
	}
	s.showPause(ctx, set) // a promotion and an abort may end a pause
	c.withoutEnded(ctx, set, update, request.Full, s.now())
	answer := stepAnswer{Name: set.Name, StepResult: result, next: nextOfRollout(set)}
	if update == protocol.ApproveUpdate {
		if continues := view.Continues(set.Name, current, s.now()); continues != "" {
			answer.next = append([]string{continues}, answer.next...)
		}
	}
	return answer, nil
}

// failedRequest returns an error that names the failed request. If Temporal does not respond, the error also
// names the command that sends the request through the operator.
func failedRequest(command, update, set string, err error) error {
	if temporal.IsUnreachable(err) {
		err = fmt.Errorf("%w; %s", err, viaCluster(command))
	}
	return fmt.Errorf("%s the rollout of SidecarSet %s: %w", update, set, err)
}

// flags returns the flags of a request that select steps.
func (r *stepRequest) flags() (flags string) {
	if r.Full {
		flags += " --full"
	}
	if r.number > 0 {
		flags += fmt.Sprintf(" --step %d", r.number)
	}
	return flags
}

// currentStep returns the current stage according to the run. If the run does not respond, currentStep returns
// the stage in the status of the SidecarSet. If no step is in progress, or if no run is open, currentStep
// returns an error.
func (r *runs) currentStep(ctx context.Context, set *v1alpha1.SidecarSet) (*protocol.Stage, error) {
	status, answers, err := r.reach(ctx, set)
	if err != nil {
		return nil, err
	}
	current, unknown := currentStep(set, view.StageOf(set, status))
	if unknown == nil && answers && status == nil {
		unknown = r.noOpenRun(set, statusCommand(set.Name))
	}
	return current, unknown
}

// reach queries the run. If Temporal does not respond, reach returns an error. If only the run does not
// respond, reach returns no error, and answers is false, because the run may still receive an update.
func (r *runs) reach(ctx context.Context, set *v1alpha1.SidecarSet) (status *protocol.RolloutStatus, answers bool, err error) {
	status, err = r.status(ctx, set)
	if errors.Is(err, errNotResponding) {
		return nil, false, nil
	}
	return status, err == nil, err
}

// currentStep returns current, or an error if no step is in progress: the generation has not begun, the rollout
// has no steps, or all steps have ended.
func currentStep(set *v1alpha1.SidecarSet, current *protocol.Stage) (*protocol.Stage, error) {
	rollout, next := set.Status.Rollout, " ("+statusCommand(set.Name)+")"
	switch {
	case current == nil && (rollout == nil || rollout.Generation != set.Generation):
		return nil, fmt.Errorf("generation %d has not begun%s", set.Generation, next)
	case current == nil, current.Steps == 0 && current.Quarantine == nil:
		return nil, errors.New("it has no steps: no RolloutPolicy selects the SidecarSet (kubectl get rolloutpolicies), or the first step has not begun" + next)
	case current.Done:
		return nil, errors.New("all its steps have ended" + next)
	}
	return current, nil
}

func statusCommand(set string) string { return "kubectl sidecarset status " + set }

// updateStep sends the update name to the run, and waits for the result.
func (r *runs) updateStep(ctx context.Context, set *v1alpha1.SidecarSet, name string, request protocol.StepRequest) (protocol.StepResult, error) {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	var result protocol.StepResult
	return result, r.await(ctx, sdk.UpdateWorkflowOptions{
		WorkflowID: protocol.WorkflowID(set.Name, set.UID), UpdateName: name, Args: []any{request},
	}, &result)
}

// explainStep adds a remedy to the error of an approval, a promotion, an abort or a retry.
func (r *runs) explainStep(of *v1alpha1.SidecarSet, update string, request protocol.StepRequest, err error) error {
	set, step, what := of.Name, request.Step+1, "approval"
	if update == protocol.PromoteUpdate {
		what = "promotion"
	}
	var rejected *sdktemporal.ApplicationError
	switch {
	case errors.Is(err, errUnread) && (update == protocol.AbortUpdate || update == protocol.RetryUpdate):
		return fmt.Errorf("%w; the %s may still take effect once a worker runs, but only for generation %d", err, update, request.Generation)
	case errors.Is(err, errUnread) && request.Full:
		return fmt.Errorf("%w; the promotion of all steps may still take effect once a worker runs, but only for generation %d; to repeat it: kubectl sidecarset promote %s --full",
			err, request.Generation, set)
	case errors.Is(err, errUnread):
		return fmt.Errorf("%w; the %s may still take effect once a worker runs, but only for step %d of generation %d; to repeat it: kubectl sidecarset %s %s --step %d",
			err, what, step, request.Generation, update, set, step)
	case temporal.IsNotFound(err):
		return r.noOpenRun(of, statusCommand(set))
	case errors.As(err, &rejected):
		return fmt.Errorf("%s (%s)", rejected.Message(), statusCommand(set))
	}
	return r.explain(err)
}

// stepAnswer is the answer of a run to an approval, a promotion, an abort or a retry, or to a
// RolloutAction.
type stepAnswer struct {
	Name string `json:"name"`
	protocol.StepResult
	// next contains the lines after the message, about the next state of the rollout.
	next []string
}

func (a stepAnswer) Text(view.Style) string {
	return fmt.Sprintf("sidecarset/%s: %s\n%s\n", a.Name, a.Message, strings.Join(a.next, "\n"))
}
