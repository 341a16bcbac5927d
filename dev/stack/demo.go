package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
)

func demoCommand(at *stateDir) *cobra.Command {
	o := upOptions{workers: 2, nodes: 4}
	d := &demo{}
	cmd := d.command("demo", "Start everything and show a rollout; Ctrl-C ends it", func(ctx context.Context) error {
		o.at = *at
		return d.run(ctx, o)
	})
	cmd.Flags().IntVar(&o.workers, "workers", 2, "number of workers")
	cmd.Flags().BoolVarP(&d.verbose, "verbose", "v", os.Getenv("V") != "", "show the commands and each step of the pods ($V)")
	return cmd
}

// command returns a command that runs a demo.
func (d *demo) command(use, short string, run func(context.Context) error) *cobra.Command {
	cmd := command(use, short, func(cmd *cobra.Command, _ []string) error {
		d.out, d.began = cmd.OutOrStdout(), time.Now()
		return run(cmd.Context())
	})
	cmd.Flags().BoolVar(&d.exit, "exit", os.Getenv("DEMO_EXIT") != "", "exit after the rollout instead of staying up ($DEMO_EXIT)")
	return cmd
}

func (d *demo) run(ctx context.Context, o upOptions) error {
	d.step("starting Kubernetes with %d simulated nodes, Temporal and Outrigger: about ten seconds", o.nodes)
	o.temporalReady = func(c *cluster.Cluster) { d.step("Temporal is up; its UI: %s", c.TemporalUI) }
	err := withStack(ctx, o, func(ctx context.Context, s *supervisor) error {
		d.step("Kubernetes and Outrigger are up: export KUBECONFIG=%s", shellWord(s.cluster.Kubeconfig))
		d.Cluster = s.cluster
		err := show(ctx, d.inject, d.change, d.pauseAndResume, d.finish)
		return d.stay(ctx, err, "make kill ROLE=worker; make start ROLE=worker\n"+
			"  bin/kubectl --kubeconfig .run/kubeconfig edit sidecarset test-sidecarset", func() { s.watch(ctx, d.out) })
	})
	if errors.Is(err, errUp) {
		return errors.New("a stack is up already; end it with `make down` first")
	}
	return err
}

// show calls the steps one after the other. If a rollout violates a rule, a step returns an error.
func show(ctx context.Context, steps ...func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the demo took longer than %s", timeout))
	defer cancel()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stay prints err if err is not nil, keeps the stack running until wait returns, and returns err.
func (d *demo) stay(ctx context.Context, err error, hint string, wait func()) error {
	if d.exit || ctx.Err() != nil {
		return err
	}
	if err != nil {
		_, _ = fmt.Fprintf(d.out, "\nThe demo failed: %v\n", err)
	}
	_, _ = fmt.Fprintf(d.out, "\nEverything stays up until Ctrl-C. Try, in another terminal:\n  %s\n", hint)
	wait()
	return err
}
