package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

	temporalReady func(*cluster.Cluster)
}

func upCommand(at *stateDir) *cobra.Command {
	var o upOptions
	var detached bool
	cmd := command("up", "Start everything; Ctrl-C stops it", func(cmd *cobra.Command, _ []string) error {
		o.at = *at
		start := func() error { return up(cmd.Context(), o, cmd.OutOrStdout()) }
		if detached {
			start = func() error { return detach(cmd.Context(), o.at, cmd.Flags(), cmd.OutOrStdout()) }
		}
		err := start()
		if errors.Is(err, errUp) {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "already up; `make status` shows it, `make down` ends it")
		}
		return err
	})
	flags := cmd.Flags()
	flags.IntVar(&o.workers, "workers", 2, "number of workers")
	flags.IntVar(&o.nodes, "nodes", 4, "number of simulated nodes, 1100 pods each")
	flags.StringVar(&o.temporal, "temporal", cmp.Or(os.Getenv(cluster.TemporalVariable), string(cluster.DevServer)),
		fmt.Sprintf("%s: one process on SQLite; %s: Temporal's own server on PostgreSQL ($%s)", cluster.DevServer, cluster.TemporalCluster, cluster.TemporalVariable))
	flags.BoolVar(&o.noRoles, "no-roles", false, "start the control plane and Temporal only")
	flags.BoolVar(&o.keep, "keep", false, "go on with the cluster and the history of the last time")
	flags.BoolVar(&detached, "detach", false, "return once everything is ready and leave it running")
	return cmd
}

// up runs the stack until ctx ends.
func up(ctx context.Context, o upOptions, out io.Writer) error {
	return withStack(ctx, o, func(ctx context.Context, s *supervisor) error {
		if _, err := io.WriteString(out, s.summary); err != nil {
			return fmt.Errorf("print the summary: %w", err)
		}
		s.watch(ctx, out)
		return nil
	})
}

// detach runs `up` with the same flags as a new process in a new session, and waits until the stack is ready
// or has failed.
func detach(ctx context.Context, at stateDir, flags *pflag.FlagSet, out io.Writer) error {
	socket, err := at.listen(ctx)
	if err != nil {
		return err
	}
	_ = socket.Close() // The supervisor opens the socket again.
	log, err := os.Create(at.logFile())
	if err != nil {
		return fmt.Errorf("create the log of the supervisor: %w", err)
	}
	defer func() { _ = log.Close() }()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	args := []string{"up"}
	flags.Visit(func(flag *pflag.Flag) {
		if flag.Name != "detach" {
			args = append(args, fmt.Sprintf("--%s=%s", flag.Name, flag.Value))
		}
	})
	// The context of the command is not used, because the supervisor outlives this command.
	supervisor := exec.CommandContext(context.Background(), self, args...)
	supervisor.Stdout, supervisor.Stderr = log, log
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := supervisor.Start(); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = supervisor.Process.Signal(syscall.SIGTERM) })()
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Wait() }()
	for {
		var summary string
		if err := at.call(ctx, "Summary", "", &summary); err == nil {
			_, err = io.WriteString(out, summary)
			return err
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the stack did not start: %w\n%s", err, process.Tail(at.logFile()))
		case <-time.After(20 * time.Millisecond): // The supervisor does not listen yet.
		}
	}
}

// withStack starts the stack, calls use, and stops the stack. If another supervisor runs, withStack returns
// errUp.
func withStack(ctx context.Context, o upOptions, use func(context.Context, *supervisor) error) error {
	began := time.Now()
	socket, err := o.at.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &supervisor{at: o.at, started: make(chan struct{}), stop: stop}
	if err := s.serve(socket); err != nil {
		return err
	}
	if !o.keep {
		if err := cluster.RemoveState(string(o.at)); err != nil {
			return err
		}
	}
	s.cluster, err = cluster.Start(ctx, cluster.Options{Dir: string(o.at), Nodes: o.nodes, Temporal: cluster.TemporalServer(o.temporal), TemporalReady: o.temporalReady})
	if err != nil {
		return err
	}
	defer s.cluster.Shutdown()
	if err := startRoles(ctx, s.cluster, o.roles()); err != nil {
		return err
	}
	defer func() { _ = os.Remove(o.at.envFile()) }() // The process ids and ports in the env file become invalid.
	if err := s.writeEnv(); err != nil {
		return err
	}
	s.summary = summary(s.cluster, o.at, time.Since(began))
	close(s.started)
	return use(ctx, s)
}

// roles returns the arguments of each role, by the name of its process.
func (o *upOptions) roles() map[string][]string {
	if o.noRoles {
		return nil
	}
	roles := map[string][]string{
		cluster.Operator: {"--leader-elect=true", "--worker-check-interval=1s"}, // leader election as in production
		cluster.Webhook:  nil,
	}
	for i := range o.workers {
		roles[fmt.Sprintf("%s-%d", cluster.Worker, i+1)] = nil
	}
	return roles
}

func startRoles(ctx context.Context, c *cluster.Cluster, roles map[string][]string) error {
	all, ctx := errgroup.WithContext(ctx)
	for name, args := range roles {
		all.Go(func() error {
			_, err := c.StartRole(ctx, name, args...)
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
  set -a; source %s; set +a
  bin/kubectl get nodes
  make status
  make kill ROLE=worker && make start ROLE=worker
  make down
`, len(c.Processes()), took.Seconds(), c.TemporalAddress, cmp.Or(c.TemporalUI, "none, only the dev server has one"), c.Kubeconfig, at.envFile(), c.LogDir(), shellWord(at.envFile()))
}

// watch reports processes that end although no caller has stopped the processes, until ctx ends.
func (s *supervisor) watch(ctx context.Context, out io.Writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case exit := <-s.cluster.Exited():
			// Write errors are ignored, so that the stack continues if no process reads the output.
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
