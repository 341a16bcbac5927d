package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func newStatus(s *shared) *cobra.Command {
	var o output.Flag
	var w watch
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show how far the rollout of a set is",
		Long: "Show how far the rollout of a set is: what it waits for, who holds it, and the set's pods by revision and owner.\n\n" +
			"With --watch it waits for the end as kubectl rollout status does: exit code 0 once every pod that is to be\n" +
			"upgraded is, and ready; 1 at the timeout, or where pods cannot be upgraded.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !w.on && cmd.Flags().Changed("timeout") {
				return errors.New("--timeout needs --watch")
			}
			if w.timeout < 0 {
				return errors.New("--timeout must be positive, or 0 for none")
			}
			c, err := s.cluster()
			if err != nil {
				return err
			}
			if w.on {
				return s.watchStatus(cmd.Context(), c, args[0], o, w)
			}
			runs, closeRuns := s.lookOnly()
			defer closeRuns()
			model, err := c.rollout(cmd.Context(), args[0], runs)
			if err != nil {
				return err
			}
			return s.print(o, model)
		},
	}
	o.Add(cmd, output.Wide, output.JSON, output.YAML)
	cmd.Flags().BoolVarP(&w.on, "watch", "w", false, "show it live, until the rollout ends")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "how long --watch waits; 0: for ever")
	return cmd
}

// watch are the flags of a command that waits.
type watch struct {
	on      bool
	timeout time.Duration
}

// look asks for the open run of a set; nil if none is.
type look func(context.Context, *v1alpha1.SidecarSet) view.RunInput

// lookOnly asks Temporal where it can be asked; what is missing otherwise is said in the
// answer.
func (s *shared) lookOnly() (ask look, done func()) {
	r, err := s.connect()
	if err != nil {
		unknown := view.RunInput{Unknown: err.Error()}
		return func(context.Context, *v1alpha1.SidecarSet) view.RunInput { return unknown }, func() {}
	}
	return func(ctx context.Context, set *v1alpha1.SidecarSet) view.RunInput {
		status, err := r.look(ctx, set)
		if err != nil {
			return view.RunInput{Unknown: err.Error()}
		}
		in := view.RunInput{Status: status, Where: r.where()}
		if status != nil && status.RejectedWrites > 0 {
			in.Refused, err = r.refused(ctx, set)
		}
		if err != nil {
			in.Unknown = err.Error()
		}
		return in
	}, r.Close
}

// rollout reads the set and its pods, and asks its run.
func (c *cluster) rollout(ctx context.Context, name string, ask look) (*view.Rollout, error) {
	set, err := c.set(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.rolloutOf(ctx, set, ask(ctx, set))
}

func (c *cluster) rolloutOf(ctx context.Context, set *v1alpha1.SidecarSet, run view.RunInput) (*view.Rollout, error) {
	in, err := c.rolloutInput(ctx, set, run)
	if err != nil {
		return nil, err
	}
	return view.NewRollout(in)
}

// rolloutInput reads what a set's rollout is told from.
func (c *cluster) rolloutInput(ctx context.Context, set *v1alpha1.SidecarSet, run view.RunInput) (view.RolloutInput, error) {
	pods, err := c.pods(ctx, set, "")
	if err != nil {
		return view.RolloutInput{}, err
	}
	// Names of revisions are on the pods; the rest is an extra.
	revisions, _ := c.revisions(ctx, set)
	return view.RolloutInput{
		Set: set, Pods: pods, NamespaceLabels: c.namespaceLabels(ctx), Revisions: revisions, Run: run, SystemNamespace: c.systemNamespace,
	}, nil
}
