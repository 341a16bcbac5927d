package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
)

type upOptions struct {
	at       stateDir
	workers  int
	nodes    int
	temporal string
	noRoles  bool
	keep     bool
	detach   bool
	reportFD int

	temporalReady func(*cluster.Cluster)
}

func upCommand(at *stateDir) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start everything; Ctrl-C stops it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.at = *at
			if o.detach {
				return detach(cmd.Context(), o, cmd.OutOrStdout())
			}
			return up(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.workers, "workers", 2, "number of workers")
	flags.IntVar(&o.nodes, "nodes", 4, "number of simulated nodes, 1100 pods each")
	flags.StringVar(&o.temporal, "temporal", cmp.Or(os.Getenv(cluster.TemporalVariable), string(cluster.DevServer)),
		fmt.Sprintf("%s: one process on SQLite; %s: Temporal's own server on PostgreSQL ($%s)", cluster.DevServer, cluster.TemporalCluster, cluster.TemporalVariable))
	flags.BoolVar(&o.noRoles, "no-roles", false, "start the control plane and Temporal only")
	flags.BoolVar(&o.keep, "keep", false, "go on with the cluster and the history of the last time")
	flags.BoolVar(&o.detach, "detach", false, "return once everything is ready and leave it running")
	flags.IntVar(&o.reportFD, reportFlag, 0, "file descriptor that gets the summary")
	_ = flags.MarkHidden(reportFlag) // the flag was defined one line above
	return cmd
}

// up runs the stack until ctx ends. The summary goes to out once all is ready.
func up(ctx context.Context, o upOptions, out io.Writer) error {
	report, closeReport := reportTo(o.reportFD, out)
	defer closeReport()
	began := time.Now()
	err := withStack(ctx, o, func(s *supervisor) error {
		if _, err := io.WriteString(report, summary(s.cluster, o.at, time.Since(began))); err != nil {
			return fmt.Errorf("print the summary: %w", err)
		}
		closeReport()
		s.watch(ctx, out)
		return nil
	})
	if errors.Is(err, errUp) {
		_, err = fmt.Fprintln(report, "already up; `make status` shows it, `make down` ends it")
	}
	return err
}

// withStack starts everything, calls use, and stops everything. It fails with errUp when
// another supervisor runs.
func withStack(ctx context.Context, o upOptions, use func(*supervisor) error) error {
	lock, err := o.at.lock()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if !o.keep {
		if err := cluster.RemoveState(string(o.at)); err != nil {
			return err
		}
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: string(o.at), Nodes: o.nodes, Temporal: cluster.TemporalServer(o.temporal), TemporalReady: o.temporalReady})
	if err != nil {
		return err
	}
	defer c.Shutdown()
	if err := startRoles(ctx, c, o); err != nil {
		return err
	}
	s := &supervisor{cluster: c, at: o.at}
	closeControl, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer closeControl()
	defer func() { _ = os.Remove(o.at.envFile()) }() // its pids and ports mean nothing any more
	if err := s.writeEnv(); err != nil {
		return err
	}
	return use(s)
}

func startRoles(ctx context.Context, c *cluster.Cluster, o upOptions) error {
	if o.noRoles {
		return nil
	}
	names := []string{cluster.Operator, cluster.Webhook}
	for i := range o.workers {
		names = append(names, fmt.Sprintf("%s-%d", cluster.Worker, i+1))
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		all.Go(func() error {
			_, err := c.StartRole(ctx, name)
			return err
		})
	}
	return all.Wait()
}

func summary(c *cluster.Cluster, at stateDir, took time.Duration) string {
	return fmt.Sprintf(`The stack is up: %d processes in %.1f s.

  Temporal      %s
  Temporal UI   %s
  kubeconfig    %s
  addresses     %s
  logs          %s

Try:
  export KUBECONFIG=%s
  bin/kubectl get nodes
  make status
  make kill ROLE=worker && make start ROLE=worker
  make down
`, len(c.Processes()), took.Seconds(), c.TemporalAddress, cmp.Or(c.TemporalUI, "none, only the dev server has one"), c.Kubeconfig, at.envFile(), c.LogDir(), c.Kubeconfig)
}

// watch reports processes that end by themselves, until ctx ends.
func (s *supervisor) watch(ctx context.Context, out io.Writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case exit := <-s.cluster.Exited():
			// The stack goes on without a reader.
			_, _ = io.WriteString(out, describe(exit))
			if err := s.writeEnv(); err != nil {
				fmt.Fprintln(os.Stderr, "stack:", err)
			}
		}
	}
}

func describe(exit process.Exit) string {
	reason := "ended"
	if exit.Err != nil {
		reason = exit.Err.Error()
	}
	return fmt.Sprintf("%s: %s; start it again with `make start ROLE=%s`\n%s\n", exit.Name, reason, exit.Name, exit.LogTail)
}
