package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/demo"
)

func demoCommand(at *stateDir) *cobra.Command {
	var exit, verbose bool
	o := upOptions{workers: 2, nodes: 4}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start everything and show a rollout; Ctrl-C ends it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.at = *at
			return runDemo(cmd.Context(), o, exit, demo.NewPrinter(cmd.OutOrStdout(), verbose))
		},
	}
	cmd.Flags().IntVar(&o.workers, "workers", 2, "number of workers")
	cmd.Flags().BoolVar(&exit, "exit", os.Getenv("DEMO_EXIT") != "", "exit after the rollout instead of staying up ($DEMO_EXIT)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", os.Getenv("V") != "", "show the commands and each step of the pods ($V)")
	return cmd
}

func runDemo(ctx context.Context, o upOptions, exit bool, printer *demo.Printer) error {
	printer.Step("starting Kubernetes with %d simulated nodes, Temporal and Outrigger: about ten seconds", o.nodes)
	o.temporalReady = func(c *cluster.Cluster) { printer.Step("Temporal is up; its UI: %s", c.TemporalUI) }
	err := withStack(ctx, o, func(ctx context.Context, s *supervisor) error {
		printer.Step("Kubernetes and Outrigger are up: export KUBECONFIG=%s", s.cluster.Kubeconfig)
		d := demo.Demo{Cluster: s.cluster, Bin: "bin", Printer: printer}
		err := d.Run(ctx)
		if exit || ctx.Err() != nil {
			return err
		}
		return stayUp(ctx, s, printer.Out, err)
	})
	if errors.Is(err, errUp) {
		return errors.New("a stack is up already; end it with `make down` first")
	}
	return err
}

// stayUp keeps the stack running until ctx ends, and returns the error of the demo.
func stayUp(ctx context.Context, s *supervisor, out io.Writer, err error) error {
	if err != nil {
		_, _ = fmt.Fprintf(out, "\nThe demo failed: %v\n", err)
	}
	_, _ = fmt.Fprintln(out, "\nEverything stays up until Ctrl-C. Try, in another terminal:\n"+
		"  make kill ROLE=worker; make start ROLE=worker\n  bin/kubectl --kubeconfig .run/kubeconfig edit sidecarset test-sidecarset")
	s.watch(ctx, out)
	return err
}
