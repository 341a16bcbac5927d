package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

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
	// planOnly prints the faults and does nothing.
	planOnly bool
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
	cmd.Flags().IntVar(&o.pods, "pods", 300, "on simulated nodes")
	cmd.Flags().BoolVar(&o.planOnly, "plan", false, "print the faults and do nothing")
	return cmd
}

// run fails when something was seen that must not be.
func run(ctx context.Context, o options, out io.Writer) error {
	plan := Plan(o.seed, o.faults, setNames(), deploymentNames())
	if o.planOnly {
		for _, f := range plan {
			if _, err := fmt.Fprintln(out, f); err != nil {
				return err
			}
		}
		return nil
	}
	dir, err := os.MkdirTemp(memory(), "outrigger-chaos-")
	if err != nil {
		return fmt.Errorf("make a state folder: %w", err)
	}
	err = disturbed(ctx, o, plan, dir, out)
	if err != nil {
		return fmt.Errorf("seed %d, %d faults: %w (logs are kept in %s)", o.seed, o.faults, err, dir)
	}
	return os.RemoveAll(dir)
}

// disturbed carries a plan out on an installation in dir.
func disturbed(ctx context.Context, o options, plan []Fault, dir string, out io.Writer) error {
	var w *world
	report := func(v observer.Violation) {
		w.say("VIOLATION, seed %d: %s\n  faults in course:\n    %s", o.seed, v, w.inCourse())
	}
	w, err := newWorld(ctx, dir, o.pods, out, report)
	if err != nil {
		return err
	}
	defer w.close()
	observing, done := context.WithCancel(ctx)
	defer done()
	go w.observer.Run(observing)
	if err := w.settle(ctx, int(w.replicas)*len(deploymentNames())); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	w.carryOut(ctx, plan)
	err = w.finish(ctx)
	if n := w.observer.Violations(); n > 0 {
		err = errors.Join(fmt.Errorf("%d violations", n), err)
	}
	w.say("%d faults, %d upgrades of pods seen, %d violations", len(plan), w.observer.Writes(), w.observer.Violations())
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
