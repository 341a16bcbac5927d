package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	// planOnly is set if the faults are printed and not injected.
	planOnly bool
}

func command() *cobra.Command {
	var o options
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
	plan := Plan(o.seed, o.faults, o.gap, rules(setNames(), deploymentNames()))
	if o.planOnly {
		for _, f := range plan {
			if _, err := fmt.Fprintln(out, f); err != nil {
				return err
			}
		}
		return nil
	}
	return inFolder(ctx, o, plan, out, func(context.Context, *fixture) {})
}

// inFolder injects the faults of a plan. If no error occurs, inFolder removes the files of the run.
func inFolder(ctx context.Context, o options, plan []Fault, out io.Writer, during func(context.Context, *fixture)) error {
	dir, err := cluster.TempDir("outrigger-chaos-")
	if err != nil {
		return err
	}
	err = disturbed(ctx, o, plan, dir, out, during)
	if err != nil {
		return fmt.Errorf("seed %d, %d faults: %w (logs are kept in %s)", o.seed, o.faults, err, dir)
	}
	return os.RemoveAll(dir)
}

// disturbed injects the faults of a plan into an installation in dir. during is called in parallel with the
// faults. The context of during ends after the faults.
func disturbed(ctx context.Context, o options, plan []Fault, dir string, out io.Writer, during func(context.Context, *fixture)) error {
	var w *fixture
	report := func(v observer.Violation) {
		w.say("VIOLATION, seed %d: %s\n  faults in progress:\n    %s", o.seed, v, w.inCourse())
	}
	w, err := newFixture(ctx, dir, o.pods, out, report)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.populate(ctx); err != nil {
		return err
	}
	defer w.watch(ctx)()
	if err := w.converge(ctx, int(w.replicas)*len(deploymentNames())); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	beside, stop := context.WithCancel(ctx)
	var measuring sync.WaitGroup
	measuring.Go(func() { during(beside, w) })
	w.carryOut(ctx, plan)
	err = w.finish(ctx)
	stop()
	measuring.Wait()
	if n := w.observer.Violations(); n > 0 {
		err = errors.Join(fmt.Errorf("%d violations", n), err)
	}
	upgrades, strict := w.observer.Upgrades()
	w.say("%d faults, %d upgrades of pods seen, %d judged strictly, %d violations", len(plan), upgrades, strict, w.observer.Violations())
	return err
}
