package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/demo"
)

func demoCommand(at *stateDir) *cobra.Command {
	var (
		exit, verbose bool
		picture       string
	)
	o := upOptions{workers: 2, nodes: 4}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start everything and show a rollout; Ctrl-C ends it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.at = *at
			if picture == "" {
				return runDemo(cmd.Context(), o, exit, demo.NewTeller(cmd.OutOrStdout(), verbose))
			}
			recording := &demo.Recording{Out: cmd.OutOrStdout(), Clock: clock.RealClock{}}
			if err := runDemo(cmd.Context(), o, true, demo.NewTeller(recording, true)); err != nil {
				return err
			}
			return os.WriteFile(picture, []byte(recording.SVG()), 0o644) //nolint:gosec // a picture that everybody may see
		},
	}
	cmd.Flags().IntVar(&o.workers, "workers", 2, "number of workers")
	cmd.Flags().BoolVar(&exit, "exit", os.Getenv("DEMO_EXIT") != "", "end after the story instead of staying up ($DEMO_EXIT)")
	cmd.Flags().StringVar(&picture, "picture", "", "end after the story, and write it to this `file` as an animated SVG")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", os.Getenv("V") != "", "show the commands and each step of the pods ($V)")
	return cmd
}

func runDemo(ctx context.Context, o upOptions, exit bool, tell *demo.Teller) error {
	tell.Step("starting Kubernetes with %d simulated nodes, Temporal and Outrigger: about ten seconds", o.nodes)
	o.temporalReady = func(c *cluster.Cluster) { tell.Step("Temporal is up; its UI: %s", c.TemporalUI) }
	err := withStack(ctx, o, func(s *supervisor) error {
		tell.Step("Kubernetes and Outrigger are up: export KUBECONFIG=%s", s.cluster.Kubeconfig)
		story := demo.Demo{Cluster: s.cluster, Bin: "bin", Tell: tell}
		err := story.Run(ctx)
		if exit || ctx.Err() != nil {
			return err
		}
		return stayUp(ctx, s, tell.Out, err)
	})
	if errors.Is(err, errUp) {
		return errors.New("a stack is up already; end it with `make down` first")
	}
	return err
}

// stayUp returns the error of the story once ctx ends.
func stayUp(ctx context.Context, s *supervisor, out io.Writer, err error) error {
	if err != nil {
		_, _ = fmt.Fprintf(out, "\nThis did not hold: %v\n", err)
	}
	_, _ = fmt.Fprintln(out, "\nEverything stays up until Ctrl-C. Try, in another terminal:\n"+
		"  make kill ROLE=worker; make start ROLE=worker\n  bin/kubectl --kubeconfig .run/kubeconfig edit sidecarset test-sidecarset")
	s.watch(ctx, out)
	return err
}
