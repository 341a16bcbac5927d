package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/chaos/observer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	seed   uint64
	faults int
	pods   int
	gap    time.Duration
	// planOnly prints the faults and does nothing.
	planOnly bool
	keep     bool
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "chaos", Short: "Disturb a whole installation and check what it promises",
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	cmd.Flags().Uint64Var(&o.seed, "seed", 1, "draw the faults from this")
	cmd.Flags().IntVar(&o.faults, "faults", 100, "how many")
	cmd.Flags().DurationVar(&o.gap, "gap", usualGap, "mean time between two faults")
	cmd.Flags().IntVar(&o.pods, "pods", 300, "on simulated nodes")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the logs of a run without violations too")
	cmd.Flags().BoolVar(&o.planOnly, "plan", false, "print the faults and do nothing")
	cmd.AddCommand(soakCommand(), restartCommand())
	return cmd
}

// run fails when something was seen that must not be.
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
	return inFolder(ctx, o, plan, out, nil)
}

// inFolder carries a plan out, and removes what it leaves unless it failed.
func inFolder(ctx context.Context, o options, plan []Fault, out io.Writer, during func(context.Context, *world) (stop func())) error {
	dir, err := os.MkdirTemp(memory(), "outrigger-chaos-")
	if err != nil {
		return fmt.Errorf("make a state folder: %w", err)
	}
	err = disturbed(ctx, o, plan, dir, out, during)
	if err != nil {
		return fmt.Errorf("seed %d, %d faults: %w (logs are kept in %s)", o.seed, o.faults, err, dir)
	}
	if o.keep {
		_, err := fmt.Fprintln(out, "logs are kept in", dir)
		return err
	}
	return os.RemoveAll(dir)
}

// disturbed carries a plan out on an installation in dir. What is to be done
// meanwhile is stopped before the end.
func disturbed(ctx context.Context, o options, plan []Fault, dir string, out io.Writer, during func(context.Context, *world) (stop func())) error {
	var w *world
	report := func(v observer.Violation) {
		w.say("VIOLATION, seed %d: %s\n  faults in course:\n    %s", o.seed, v, w.inCourse())
	}
	w, err := newWorld(ctx, dir, o.pods, out, report)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.populate(ctx, setNames()); err != nil {
		return err
	}
	defer w.watch(ctx)()
	if err := w.settle(ctx, int(w.replicas)*len(deploymentNames())); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	if during != nil {
		defer during(ctx, w)()
	}
	w.carryOut(ctx, plan)
	err = w.finish(ctx)
	if n := w.observer.Violations(); n > 0 {
		err = errors.Join(fmt.Errorf("%d violations", n), err)
	}
	w.say("%d faults, %d upgrades of pods seen, %d judged strictly, %d violations",
		len(plan), len(w.observer.Upgrades()), w.observer.Strict(), w.observer.Violations())
	return err
}

// memory is a folder that no disk slows down; empty where there is none.
func memory() string {
	const shared = "/dev/shm"
	if info, err := os.Stat(shared); err == nil && info.IsDir() {
		return shared
	}
	return ""
}
