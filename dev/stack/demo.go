package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
)

func demoCommand(at *stateDir) *cobra.Command {
	var exit, verbose bool
	o := upOptions{workers: 2, nodes: 4}
	cmd := command("demo", "Start everything and show a rollout; Ctrl-C ends it", func(cmd *cobra.Command, _ []string) error {
		o.at = *at
		return runDemo(cmd.Context(), o, exit, &demo{out: cmd.OutOrStdout(), verbose: verbose, began: time.Now()})
	})
	cmd.Flags().IntVar(&o.workers, "workers", 2, "number of workers")
	cmd.Flags().BoolVar(&exit, "exit", os.Getenv("DEMO_EXIT") != "", "exit after the rollout instead of staying up ($DEMO_EXIT)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", os.Getenv("V") != "", "show the commands and each step of the pods ($V)")
	return cmd
}

func runDemo(ctx context.Context, o upOptions, exit bool, d *demo) error {
	d.step("starting Kubernetes with %d simulated nodes, Temporal and Outrigger: about ten seconds", o.nodes)
	o.temporalReady = func(c *cluster.Cluster) { d.step("Temporal is up; its UI: %s", c.TemporalUI) }
	err := withStack(ctx, o, func(ctx context.Context, s *supervisor) error {
		d.step("Kubernetes and Outrigger are up: export KUBECONFIG=%s", shellWord(s.cluster.Kubeconfig))
		d.Cluster = s.cluster
		err := d.show(ctx)
		if exit || ctx.Err() != nil {
			return err
		}
		return stayUp(ctx, s, d.out, err)
	})
	if errors.Is(err, errUp) {
		return errors.New("a stack is up already; end it with `make down` first")
	}
	return err
}

// stayUp prints err if err is set, keeps the stack running until ctx ends, and returns err.
func stayUp(ctx context.Context, s *supervisor, out io.Writer, err error) error {
	if err != nil {
		_, _ = fmt.Fprintf(out, "\nThe demo failed: %v\n", err)
	}
	_, _ = fmt.Fprintln(out, "\nEverything stays up until Ctrl-C. Try, in another terminal:\n"+
		"  make kill ROLE=worker; make start ROLE=worker\n  bin/kubectl --kubeconfig .run/kubeconfig edit sidecarset test-sidecarset")
	s.watch(ctx, out)
	return err
}
