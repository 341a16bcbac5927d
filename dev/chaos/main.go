package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options are the options of a run of chaos.
type options struct {
	seed   uint64
	faults int
	pods   int
	gap    time.Duration
	// planOnly is true if the faults are printed and not injected.
	planOnly bool
	rules    []rule
	// If during is not nil, during is called in parallel with the faults. The context of during ends after the
	// faults.
	during func(context.Context, *fixture)
}

func command() *cobra.Command {
	o := options{rules: rules(setNames(), deploymentNames())}
	cmd := &cobra.Command{
		Use: "chaos", Short: "Disturb a whole installation and check the rules of docs/SPEC.md",
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	cmd.Flags().Uint64Var(&o.seed, "seed", 1, "seed of the random faults")
	cmd.Flags().IntVar(&o.faults, "faults", 100, "how many")
	cmd.Flags().DurationVar(&o.gap, "gap", usualGap, "mean time between two faults")
	cmd.Flags().IntVar(&o.pods, "pods", 300, "on simulated nodes")
	cmd.Flags().BoolVar(&o.planOnly, "plan", false, "print the faults and do nothing")
	cmd.AddCommand(soakCommand(), fleetCommand())
	return cmd
}

// run injects the faults of a plan. If a rule was violated, run returns an error.
func run(ctx context.Context, o options, out io.Writer) error {
	plan := Plan(o.seed, o.faults, o.gap, o.rules)
	if o.planOnly {
		for _, f := range plan {
			if _, err := fmt.Fprintln(out, f); err != nil {
				return err
			}
		}
		return nil
	}
	return inFolder(fmt.Sprintf("seed %d, %d faults", o.seed, o.faults), func(dir string) error { return disturbed(ctx, o, plan, dir, out) })
}

// inFolder calls do with a new directory. If no error occurs, inFolder removes the directory.
func inFolder(what string, do func(dir string) error) error {
	dir, err := cluster.TempDir("outrigger-chaos-")
	if err != nil {
		return err
	}
	if err := do(dir); err != nil {
		return fmt.Errorf("%s: %w (logs are kept in %s)", what, err, dir)
	}
	return os.RemoveAll(dir)
}

// disturbed injects the faults of a plan into an installation in dir.
func disturbed(ctx context.Context, o options, plan []Fault, dir string, out io.Writer) error {
	var w *fixture
	report := func(v observer.Violation) {
		w.say("VIOLATION, seed %d: %s\n  faults in progress:\n    %s", o.seed, v, w.inCourse())
	}
	w, err := newFixture(ctx, cluster.Options{}, "", dir, out, report)
	if err != nil {
		return err
	}
	defer w.close()
	w.replicas = int32(o.pods / len(deploymentNames()))
	var stopThrottle func()
	if w.throttle, stopThrottle, err = startThrottle(ctx, w.apiServer, filepath.Dir(w.RoleKubeconfig(cluster.Worker))); err != nil {
		return err
	}
	defer stopThrottle()
	for _, role := range []string{cluster.Operator, cluster.Webhook, "worker-1", "worker-2"} {
		if err := w.startRole(ctx, role); err != nil {
			return err
		}
	}
	if _, err := w.Kubectl(ctx, policy, "create", "-f", "-"); err != nil {
		return err
	}
	defer w.watch(ctx)()
	if err := w.populate(ctx, setNames(), deploymentNames(), w.replicas); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	beside, stop := context.WithCancel(ctx)
	var measuring sync.WaitGroup
	if o.during != nil {
		measuring.Go(func() { o.during(beside, w) })
	}
	w.carryOut(ctx, plan)
	err = w.finish(ctx)
	stop()
	measuring.Wait()
	seen := w.observer.Totals()
	if seen.Violations > 0 {
		err = errors.Join(fmt.Errorf("%d violations", seen.Violations), err)
	}
	w.say("%d faults, %d upgrades of pods seen, %d judged strictly, %d violations", len(plan), seen.Upgrades, seen.Strict, seen.Violations)
	return err
}
