package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func newStatus(s *shared) *cobra.Command {
	var o output.Flag
	var watch bool
	var end rolloutEnd
	cmd := s.ofSet(&cobra.Command{
		Use:        "status NAME",
		SuggestFor: []string{"describe", "rollout"},
		Short:      "Show the progress of the rollout of a SidecarSet",
		Long: "Show the progress of the rollout of a SidecarSet: what the rollout waits for, who paused the rollout, and the pods by\n" +
			"revision and owner.\n\n" +
			"With --watch, the command waits until the rollout ends, as kubectl rollout status does. The exit code is 0 once every\n" +
			"pod of the rollout is upgraded and ready; 1 at the timeout, or if pods cannot be upgraded; 2 with --fail-on-degraded,\n" +
			"as soon as the SidecarSet is degraded.",
		Example: `  kubectl sidecarset status logs
  kubectl sidecarset status logs -o wide                 # every pod, with its node
  kubectl sidecarset status logs --watch --timeout 10m   # wait for the end, for example in a pipeline
  kubectl sidecarset status logs -w --fail-on-degraded   # and fail with the cause, for example of a bad image`,
		Args: takes(1, aSidecarSet),
	})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the progress until the rollout ends")
	cmd.Flags().DurationVar(&end.timeout, "timeout", 0, "time limit of --watch; 0: none")
	cmd.Flags().BoolVar(&end.failOnDegraded, "fail-on-degraded", false, "end --watch with exit code 2 once the SidecarSet is degraded")
	return s.prints(cmd, &o, func(ctx context.Context, c *cluster, args []string) (model, error) {
		switch {
		case !watch && cmd.Flags().Changed("timeout"):
			return nil, errors.New("--timeout needs --watch")
		case !watch && end.failOnDegraded:
			return nil, errors.New("--fail-on-degraded needs --watch")
		case end.timeout < 0:
			return nil, errors.New("--timeout must be positive, or 0 for none")
		}
		if end.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, end.timeout)
			defer cancel()
		}
		set, err := c.set(ctx, args[0])
		if err != nil {
			return nil, err
		}
		if watch {
			return nil, s.watch(ctx, c, set, o, end)
		}
		r, err := c.rollout(ctx, set, c.reads(ctx, set, s.readRun, s.now()))
		if err != nil {
			return nil, err
		}
		return r, nil
	}, output.Wide, output.JSON, output.YAML)
}

// reads contains the state of the run, the RolloutPolicy and the nodes, which some commands show in addition
// to a SidecarSet, its pods and its revisions.
type reads struct {
	run    view.RunInput
	policy *outriggerv1.RolloutPolicy
	nodes  view.Nodes
	// fault is the part of the installation that does not respond.
	fault view.Fault
	now   time.Time
}

// reads reads the run and the Lease of the operator concurrently, because the query of a run that does not
// respond takes several seconds.
func (c *cluster) reads(ctx context.Context, set *v1alpha1.SidecarSet, readRun func(context.Context, *v1alpha1.SidecarSet) view.RunInput, now time.Time) reads {
	also := reads{nodes: c.nodes(ctx, now), now: now}
	var asked sync.WaitGroup
	asked.Go(func() { also.run = readRun(ctx, set) })
	asked.Go(func() { also.fault = c.fault(ctx, now) })
	also.policy = c.policy(ctx, set)
	asked.Wait()
	also.fault = c.webhookFault(ctx, c.correct(ctx, also.fault, also.run), *set)
	return also
}

func (c *cluster) rollout(ctx context.Context, set *v1alpha1.SidecarSet, also reads) (*view.Rollout, error) {
	in, err := c.inputWithRevisions(ctx, set)
	if err != nil {
		return nil, err
	}
	also.addTo(in)
	return view.NewRollout(in)
}

func (r *reads) addTo(in *view.Input) {
	in.Run, in.Policy, in.Nodes, in.Fault, in.Now = r.run, r.policy, r.nodes, r.fault, r.now
}

// inputWithRevisions returns the input with the revisions. If the revisions cannot be read,
// inputWithRevisions omits the revisions, because pods contain the names of their revisions.
func (c *cluster) inputWithRevisions(ctx context.Context, set *v1alpha1.SidecarSet) (*view.Input, error) {
	in, err := c.input(ctx, set, "")
	if err == nil {
		in.Revisions, _ = c.revisions(ctx, set)
	}
	return in, err
}
