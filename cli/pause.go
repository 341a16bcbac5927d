package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	sdk "go.temporal.io/sdk/temporal"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/temporal"
)

func newPause(s *shared) *cobra.Command {
	return s.updates(protocol.PauseUpdate, &cobra.Command{
		Use:   "pause (NAME | --all) [--reason TEXT]",
		Short: "Pause the rollout of a SidecarSet, or all rollouts, until they are resumed",
		Long: "Pause the rollout of a SidecarSet until it is resumed, and wait for the answer of its run.\n\n" +
			"The running batch stops within seconds: pods that the worker has not patched by then keep their version.\n" +
			"The pause outlives generations and lost runs; status shows who paused the rollout, and the reason. Without an open\n" +
			"run, the command sets spec.updateStrategy.paused, which pauses the next rollout and has no reason. While status shows\n" +
			"an unfinished rollout, the command fails instead, because the run may be open in another Temporal.\n\n" +
			"With --all, the command pauses all SidecarSets with an open run, and prints a line for each SidecarSet. The exit code\n" +
			"is 1 if the pause of a SidecarSet failed, or if no run is open while the status of a SidecarSet shows an unfinished\n" +
			"rollout.",
		Example: `  kubectl sidecarset pause logs --reason "errors in the logs"
  kubectl sidecarset pause logs --reason "change freeze" -o json   # the answer of the run as JSON
  kubectl sidecarset pause --all --reason "incident 42"            # every open run`,
	})
}

func newResume(s *shared) *cobra.Command {
	return s.updates(protocol.ResumeUpdate, &cobra.Command{
		Use:   "resume (NAME | --all) [--reason TEXT]",
		Short: "Resume a paused rollout, or all of them",
		Long: "Resume a paused rollout. If the SidecarSet is paused by its spec, the command also sets\n" +
			"spec.updateStrategy.paused to false. With --all, the command resumes all SidecarSets with an open run, and leaves\n" +
			"the specs unchanged.",
		Example: `  kubectl sidecarset resume logs
  kubectl sidecarset resume logs --reason "the errors had another cause"   # the history shows the reason
  kubectl sidecarset resume --all`,
	})
}

// updates makes cmd send update to the run of one SidecarSet, or to all open runs.
func (s *shared) updates(update string, cmd *cobra.Command) *cobra.Command {
	var reason string
	var all, via bool
	cmd.Args = takes(1, aSidecarSet)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that status, conditions and the run show")
	cmd.Flags().BoolVar(&all, "all", false, "all SidecarSets with an open run, instead of one")
	addViaCluster(cmd, &via)
	return s.prints(s.ofSet(cmd), &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		if all && via {
			return nil, errors.New("--via-cluster is for one SidecarSet: leave out --via-cluster, or name a SidecarSet instead of --all")
		}
		if all {
			return s.updateAll(ctx, c, update, reason)
		}
		if via {
			return s.act(ctx, c, args[0], outriggerv1.RolloutActionSpec{Verb: outriggerv1.RolloutVerb(update), Reason: reason})
		}
		set, err := c.set(ctx, args[0])
		if err != nil {
			return nil, err
		}
		if update == protocol.ResumeUpdate && set.Spec.UpdateStrategy.Paused {
			return s.resumeSpec(ctx, c, set, reason)
		}
		answer, err := s.update(ctx, c, set, update, reason)
		// The run of an unfinished rollout may be open in another Temporal, so the error names both.
		if update == protocol.PauseUpdate && errors.Is(err, errNoOpenRun) && !view.Unfinished(set) {
			answer, err := c.pauseSpec(ctx, set, true)
			if err != nil {
				return nil, err
			}
			if reason != "" {
				answer.Message += "; the spec has no reason, so the reason is not kept"
			}
			return answer, nil
		}
		if err != nil {
			return nil, err
		}
		return answer, nil
	}, output.JSON, output.YAML)
}

// resumeSpec ends a pause by the spec. If the status also shows a pause of the run, resumeSpec then resumes
// the run.
func (s *shared) resumeSpec(ctx context.Context, c *cluster, set *v1alpha1.SidecarSet, reason string) (model, error) {
	answer, err := c.pauseSpec(ctx, set, false)
	if err != nil {
		return nil, err
	}
	if set.Status.Rollout == nil || set.Status.Rollout.Pause == nil {
		return answer, nil
	}
	set = set.DeepCopy()
	set.Spec.UpdateStrategy.Paused = false
	if answer, err = s.update(ctx, c, set, protocol.ResumeUpdate, reason); err != nil {
		return nil, fmt.Errorf("spec.updateStrategy.paused is false now, and the run is still paused: %w", err)
	}
	return answer, nil
}

// pauseSpec sets spec.updateStrategy.paused, which also applies to rollouts without a run.
func (c *cluster) pauseSpec(ctx context.Context, set *v1alpha1.SidecarSet, paused bool) (updateAnswer, error) {
	patch := fmt.Appendf(nil, `{"spec":{"updateStrategy":{"paused":%t}}}`, paused)
	if err := c.live.Patch(ctx, set.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(name)); err != nil {
		return updateAnswer{}, explain(err, "patch SidecarSet "+set.Name)
	}
	answer := updateAnswer{Name: set.Name, PauseResult: protocol.PauseResult{Paused: paused}}
	if paused {
		answer.Message = "has no open run; its spec pauses the next rollout (spec.updateStrategy.paused)"
		answer.next = "next: " + view.ResumeCommand(set.Name)
		return answer, nil
	}
	answer.Message = "resumed (spec.updateStrategy.paused is false)"
	answer.next = "next: kubectl sidecarset status " + set.Name + " --watch"
	return answer, nil
}

// update sends an update to the run of a SidecarSet.
func (s *shared) update(ctx context.Context, c *cluster, set *v1alpha1.SidecarSet, update, reason string) (updateAnswer, error) {
	sender, err := s.sender(ctx, c, update, reason)
	var answer updateAnswer
	if err == nil {
		defer sender.Close()
		answer, err = sender.send(ctx, set)
		if err != nil {
			err = fmt.Errorf("%s the rollout of SidecarSet %s: %w", update, set.Name, sender.explainUpdate(set, update, err))
		}
	}
	if err == nil && update == protocol.PauseUpdate {
		sorted, _ := c.revisions(ctx, set) // Without the revisions, the command undo has no revision.
		answer.next += ", or " + view.UndoCommand(set, sorted)
	}
	if frozen := view.Frozen(set); err != nil && update == protocol.ResumeUpdate && frozen != "" {
		err = fmt.Errorf("%w; SidecarSet %s is %s", err, set.Name, frozen)
	}
	return answer, err
}

// sender sends a pause or a resume to runs.
type sender struct {
	*runs
	update string
	pause  protocol.Pause
}

// sender connects to Temporal, and returns a sender of update. The caller closes the sender.
func (s *shared) sender(ctx context.Context, c *cluster, update, reason string) (*sender, error) {
	if len(reason) > protocol.MaxPauseText {
		return nil, fmt.Errorf("--reason has %d bytes, and may have %d", len(reason), protocol.MaxPauseText)
	}
	r, err := s.connect()
	if err != nil {
		return nil, err
	}
	return &sender{r, update, protocol.Pause{By: c.user(ctx), Reason: reason}}, nil
}

func (s *sender) send(ctx context.Context, set *v1alpha1.SidecarSet) (updateAnswer, error) {
	result, err := s.runs.update(ctx, set, s.update, s.pause)
	if err != nil {
		return updateAnswer{}, err
	}
	answer := updateAnswer{Name: set.Name, PauseResult: result, next: "next: " + view.ResumeCommand(set.Name)}
	if s.update == protocol.ResumeUpdate {
		resumed := set.DeepCopy()
		resumed.Status.Rollout = nil // The status may still show the ended pause.
		answer.next = strings.Join(nextOfRollout(resumed), "\n")
	}
	return answer, nil
}

// updateAnswer is the answer of a run to a pause or a resume.
type updateAnswer struct {
	Name string `json:"name"`
	protocol.PauseResult
	// Error is the reason that the update failed.
	Error string `json:"error,omitempty"`
	// next contains the lines about the next command.
	next string
}

func (a updateAnswer) Text(view.Style) string { return a.line() + a.next + "\n" }

func (a updateAnswer) line() string {
	if a.Error != "" {
		return fmt.Sprintf("sidecarset/%s failed: %s\n", a.Name, a.Error)
	}
	return fmt.Sprintf("sidecarset/%s %s\n", a.Name, a.Message)
}

// explainUpdate adds a remedy to the error of an update.
func (r *runs) explainUpdate(of *v1alpha1.SidecarSet, update string, err error) error {
	set := of.Name
	var rejected *sdk.ApplicationError
	specPause := view.PatchStrategy(set, "paused", "true")
	next, withdraw := "spec.updateStrategy.paused pauses the next run: "+specPause,
		"to withdraw it: "+view.ResumeCommand(set)+"; the spec pauses the rollout in any case: "+specPause
	unreachable := "to pause by the spec, which takes effect when Temporal responds: " + specPause
	if update == protocol.ResumeUpdate {
		next = "kubectl sidecarset status " + set
		withdraw, unreachable = "to withdraw it: kubectl sidecarset pause "+set, viaCluster(update+" "+set)
	}
	switch {
	case errors.Is(err, errUnread):
		return fmt.Errorf("%w; the %s takes effect once a worker runs; %s", err, update, withdraw)
	case temporal.IsNotFound(err):
		return r.noOpenRun(of, next)
	case errors.As(err, &rejected):
		return fmt.Errorf("%s (kubectl sidecarset status %s)", rejected.Message(), set)
	case temporal.IsUnreachable(err):
		return fmt.Errorf("%w; %s", r.explain(err), unreachable)
	}
	return r.explain(err)
}

var errNoOpenRun = errors.New("no open run")

// noOpenRun returns the error of an update of a SidecarSet without an open run. If the status shows an
// unfinished rollout, the error first states that the operator may use another Temporal.
func (r *runs) noOpenRun(set *v1alpha1.SidecarSet, next string) error {
	text := fmt.Sprintf("no run is open, because no pod is left to upgrade; %s; if the operator uses another Temporal than %s, %s", next, strings.TrimPrefix(r.endpoint(), "Temporal at "), otherTemporal)
	if view.Unfinished(set) {
		text = fmt.Sprintf("%s has no open run of the SidecarSet, but status shows an unfinished rollout: if the operator uses another Temporal, %s; %s", r.endpoint(), otherTemporal, next)
	}
	return &explainedError{text, errNoOpenRun}
}
