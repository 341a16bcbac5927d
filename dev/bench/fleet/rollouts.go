package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/dev/bench/figures"
	"github.com/outrigger/outrigger/dev/bench/testbed"
	"github.com/outrigger/outrigger/dev/witness"
)

// rollouts measures sets that roll out together.
type rollouts struct {
	pods, sets, workers, maxUnavailablePods int
	window                                  string
}

func newRollouts() *cobra.Command {
	b := &rollouts{}
	cmd := subcommand("rollouts", "Measure SidecarSets that roll out together", b)
	cmd.Flags().IntVar(&b.pods, "pods", 5000, "number of pods, in all")
	cmd.Flags().IntVar(&b.sets, "sets", 50, "number of SidecarSets")
	cmd.Flags().StringVar(&b.window, "window", "10%", "maxUnavailable of each set: number or percent")
	cmd.Flags().IntVar(&b.workers, "workers", 2, "number of workers")
	cmd.Flags().IntVar(&b.maxUnavailablePods, "max-unavailable-pods", 0, "flag of the workers; fail when more pods were in flight; 0: none")
	return cmd
}

func (b *rollouts) check() error {
	if err := positive("workers", b.workers); err != nil {
		return err
	}
	return checkSets(b.sets, b.pods, b.window)
}

func (b *rollouts) run(ctx context.Context, out io.Writer) error {
	var flags []string
	if b.maxUnavailablePods > 0 {
		flags = append(flags, fmt.Sprintf("--max-unavailable-pods=%d", b.maxUnavailablePods))
	}
	f, err := startFleet(ctx, b.pods, b.workers, flags...)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.populate(ctx, newSets("set", b.sets, intstr.Parse(b.window)), b.pods/b.sets); err != nil {
		return err
	}
	used, began, err := f.rollOut(ctx)
	if err != nil {
		return err
	}
	worst, _ := f.witness.Worst()
	_, served := f.witness.Updates()
	var lines figures.Lines
	lines.Add("sets", "%d", b.sets)
	lines.Add("pods", "%d", f.pods)
	lines.Seconds("seconds", used.Took)
	for _, percent := range []int{50, 100} {
		reached := reachedBySet(served, began, f.pods/b.sets, percent)
		for i, name := range []string{"first set", "median set", "last set"} {
			lines.Seconds(fmt.Sprintf("until %d %%, %s, seconds", percent, name), reached[i*(len(reached)-1)/2])
		}
	}
	lines.Add("most in flight at once", "%d", worst)
	lines.Each("API writes a pod", "%.3f", figures.Scaled(used.Writes, 1/float64(f.pods)))
	lines.Each("calls to Temporal a pod", "%.3f", figures.Scaled(used.TemporalRequests, 1/float64(f.pods)))
	lines.Each("processor seconds", "%.1f", used.Processor)
	f.failedLine(&lines)
	if _, err := io.WriteString(out, lines.String()); err != nil {
		return err
	}
	if b.maxUnavailablePods > 0 && worst > b.maxUnavailablePods {
		return fmt.Errorf("%d pods were in flight at once, beyond --max-unavailable-pods %d", worst, b.maxUnavailablePods)
	}
	return nil
}

// reachedBySet is how long each set took until so many percent of its pods served with
// the new image, sorted.
func reachedBySet(served []witness.Update, began time.Time, pods, percent int) []time.Duration {
	seen := map[string]int{}
	var reached []time.Duration
	for _, update := range served {
		set := update.Labels[testbed.AppLabel]
		seen[set]++
		if seen[set] == (pods*percent+99)/100 {
			reached = append(reached, update.At.Sub(began))
		}
	}
	slices.Sort(reached)
	return reached
}
