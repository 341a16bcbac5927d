package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/temporal"
)

func newPause(s *shared) *cobra.Command {
	return s.updates(protocol.PauseUpdate, &cobra.Command{
		Use:   "pause NAME --reason TEXT",
		Short: "Pause the rollout of a SidecarSet until it is resumed",
		Long: "Pause the rollout of a SidecarSet until it is resumed, and wait for the answer of its run.\n\n" +
			"The running batch stops within seconds: pods that the worker has not patched by then keep their version.\n" +
			"The pause outlives generations and lost runs; status shows by whom the rollout is paused, and the reason.\n" +
			"spec.updateStrategy.paused also pauses rollouts that have not started, and needs no Temporal.",
		Example: `  kubectl sidecarset pause logs --reason "errors in the logs"
  kubectl sidecarset pause logs --reason "change freeze" -o json   # the answer of the run as JSON`,
	})
}

func newResume(s *shared) *cobra.Command {
	return s.updates(protocol.ResumeUpdate, &cobra.Command{
		Use:   "resume NAME --reason TEXT",
		Short: "Resume a paused rollout",
		Example: `  kubectl sidecarset resume logs
  kubectl sidecarset resume logs --reason "the errors had another cause"   # the history shows the reason`,
	})
}

// updates completes a command that sends an update to a run.
func (s *shared) updates(update string, cmd *cobra.Command) *cobra.Command {
	var reason string
	cmd.Args = cobra.ExactArgs(1)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that status, conditions and the run show")
	return s.prints(s.ofSet(cmd), &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		set, err := c.set(ctx, args[0])
		if err != nil {
			return nil, err
		}
		result, err := s.update(ctx, c, set, update, reason)
		resumed := update == protocol.ResumeUpdate
		switch {
		case err != nil && resumed && set.Spec.UpdateStrategy.Paused:
			return nil, fmt.Errorf("%w; SidecarSet %s is paused by its spec: %s", err, set.Name, view.PausedBySpec(set.Name))
		case err != nil:
			return nil, err
		case !resumed:
			return updateAnswer{set.Name, result, "next: " + view.ResumeCommand(set.Name) + ", or kubectl sidecarset undo " + set.Name}, nil
		}
		set.Status.Rollout = nil // status may still show the pause that ended
		return updateAnswer{set.Name, result, strings.Join(nextOfRollout(set), "\n")}, nil
	}, output.JSON, output.YAML)
}

// update sends an update to the run of a SidecarSet.
func (s *shared) update(ctx context.Context, c *cluster, set *v1alpha1.SidecarSet, update, reason string) (protocol.PauseResult, error) {
	r, err := s.connect()
	if err != nil {
		return protocol.PauseResult{}, err
	}
	defer r.Close()
	user := cmp.Or(c.user(ctx), os.Getenv("USER"))
	result, err := r.update(ctx, set, update, protocol.Pause{By: user, Reason: reason})
	if err != nil {
		return result, fmt.Errorf("%s the rollout of SidecarSet %s: %w", update, set.Name, r.explainUpdate(set.Name, update, err))
	}
	return result, nil
}

// updateAnswer is the answer of a run.
type updateAnswer struct {
	Name string `json:"name"`
	protocol.PauseResult
	// next is the next step.
	next string
}

func (a updateAnswer) Text(view.Style) string {
	return fmt.Sprintf("sidecarset/%s %s\n%s\n", a.Name, a.Message, a.next)
}

// explainUpdate adds a remedy to the error of an update.
func (r *runs) explainUpdate(set, update string, err error) error {
	var rejected *sdk.ApplicationError
	next := "spec.updateStrategy.paused pauses the next run: " + view.PatchStrategy(set, "paused", "true")
	if update == protocol.ResumeUpdate {
		next = "kubectl sidecarset status " + set
	}
	switch {
	case temporal.IsNotFound(err):
		return fmt.Errorf("%s has no open run of the SidecarSet: all pods that can be upgraded are, or the operator uses another Temporal (%s); %s",
			r.endpoint(), otherTemporal, next)
	case errors.As(err, &rejected):
		return fmt.Errorf("%s (kubectl sidecarset status %s)", rejected.Message(), set)
	case temporal.IsUnreachable(err):
		return fmt.Errorf("%w; or no worker runs (kubectl sidecarset check): spec.updateStrategy.paused is followed as soon as one runs", r.explain(err))
	}
	return r.explain(err)
}
