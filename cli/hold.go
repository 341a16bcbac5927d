package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func newPause(s *shared) *cobra.Command {
	cmd := newHold(s, "pause", protocol.PauseUpdate)
	cmd.Short = "Hold the rollout of a set until it is resumed"
	cmd.Long = "Hold the rollout of a set until it is resumed, and wait for its answer.\n\n" +
		"The running batch stops within seconds: pods that the worker has not patched by then keep their version.\n" +
		"The hold outlives generations and lost runs; status shows who holds it and why.\n" +
		"spec.updateStrategy.paused holds rollouts, too, also those that have not begun, and needs no Temporal."
	return cmd
}

func newResume(s *shared) *cobra.Command {
	cmd := newHold(s, "resume", protocol.ResumeUpdate)
	cmd.Short = "Let a rollout that was paused go on"
	return cmd
}

func newHold(s *shared, verb, update string) *cobra.Command {
	var why string
	var o output.Flag
	cmd := &cobra.Command{
		Use:               verb + " NAME --reason TEXT",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.hold(cmd.Context(), args[0], update, why, o)
		},
	}
	o.Add(cmd, output.JSON, output.YAML)
	cmd.Flags().StringVar(&why, "reason", "", "`text` that status, conditions and the run show")
	return cmd
}

// holdAnswer is what a run answered.
type holdAnswer struct {
	Name string `json:"name"`
	protocol.PauseResult
}

func (a holdAnswer) Write(out io.Writer, _ view.Text) error {
	_, err := fmt.Fprintf(out, "sidecarset/%s %s\n", a.Name, a.Message)
	return err
}

func (s *shared) hold(ctx context.Context, name, update, why string, o output.Flag) error {
	c, err := s.cluster()
	if err != nil {
		return err
	}
	set, err := c.set(ctx, name)
	if err != nil {
		return err
	}
	r, err := s.connect()
	if err != nil {
		return err
	}
	defer r.Close()
	who := cmp.Or(c.user(ctx), os.Getenv("USER"))
	result, err := r.update(ctx, set, update, protocol.Pause{By: who, Reason: why})
	if err != nil {
		return fmt.Errorf("%s the rollout of SidecarSet %s: %w", update, set.Name, r.explainUpdate(err))
	}
	return s.print(o, holdAnswer{set.Name, result})
}

// explainUpdate says why a run did not take an update, and what does.
func (r *runs) explainUpdate(err error) error {
	var none *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(err, &none):
		return fmt.Errorf("%s has no open run of the set: everything that can be upgraded is, or the operator uses another Temporal (%s); spec.updateStrategy.paused holds the next one",
			r.where(), elsewhere)
	case errors.As(err, &refused):
		return errors.New(refused.Message())
	case unanswered(err):
		return fmt.Errorf("%w; or no worker runs: spec.updateStrategy.paused is followed as soon as one runs", r.explain(err))
	}
	return r.explain(err)
}
