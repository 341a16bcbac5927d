package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/dev/bench/figures"
	"github.com/outrigger/outrigger/dev/bench/testbed"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/witness"
)

// start measures how a process starts again that is killed in the middle of a rollout.
type start struct {
	pods   int
	window string
}

func newStart() *cobra.Command {
	b := &start{}
	cmd := subcommand("start", "Measure how each role starts again during a rollout", b)
	cmd.Flags().IntVar(&b.pods, "pods", 10000, "number of pods")
	cmd.Flags().StringVar(&b.window, "window", "2%", "maxUnavailable: number or percent")
	return cmd
}

func (b *start) check() error { return checkSets(1, b.pods, b.window) }

func (b *start) run(ctx context.Context, out io.Writer) error {
	f, err := startFleet(ctx, b.pods, 1)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.populate(ctx, newSets("set", 1, intstr.Parse(b.window)), b.pods); err != nil {
		return err
	}
	var lines figures.Lines
	lines.Add("pods", "%d", b.pods)
	lines.Add("window", "%s", b.window)
	named := func(name string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return name, nil }
	}
	for _, name := range []string{cluster.Operator, cluster.Webhook, testbed.WorkerName(1)} {
		if err := f.restart(ctx, name, named(name), &lines); err != nil {
			return fmt.Errorf("restart %s: %w", name, err)
		}
	}
	if _, err := f.Stack.StartRole(ctx, testbed.WorkerName(2)); err != nil {
		return err
	}
	if err := f.restart(ctx, "writing worker of 2", f.writingWorker, &lines); err != nil {
		return fmt.Errorf("restart one of two workers: %w", err)
	}
	f.failedLine(&lines)
	_, err = io.WriteString(out, lines.String())
	return err
}

func (f *fleet) writingWorker(ctx context.Context) (string, error) {
	identity, err := f.runs.writer(ctx, f.sets[0])
	_, name, _ := strings.Cut(identity, "@")
	return name, err
}

// restart begins a rollout, kills a process once it is in course, starts it again, and
// goes on until the rollout does.
func (f *fleet) restart(ctx context.Context, title string, process func(context.Context) (string, error), lines *figures.Lines) error {
	if _, err := f.changeImage(ctx); err != nil {
		return err
	}
	some := max(f.pods/20, 1)
	if _, err := f.witness.Await(ctx, updated(some)); err != nil {
		return err
	}
	name, err := process(ctx)
	if err != nil {
		return err
	}
	undisturbed, _ := f.witness.Updates()
	killed := time.Now()
	if err := f.Stack.Kill(name); err != nil {
		return err
	}
	if err := f.Stack.StartAgain(ctx, name); err != nil {
		return err
	}
	ready := time.Since(killed)
	if _, err := f.witness.Await(ctx, updated(min(f.witness.View().Updated+some, f.pods))); err != nil {
		return err
	}
	asked, _ := f.witness.Updates()
	status, err := f.Stack.Process(name)
	if err != nil {
		return err
	}
	memory, err := figures.MemoryOf(status.PID)
	if err != nil {
		return fmt.Errorf("read the memory: %w", err)
	}
	lines.Seconds(title+": until ready, seconds", ready)
	lines.Add(title+": peak memory, MiB", "%.0f", memory.Peak)
	lines.Seconds(title+": longest gap before, seconds", longestGap(undisturbed, time.Time{}))
	lines.Seconds(title+": longest gap around it, seconds", longestGap(asked, killed))
	return nil
}

func updated(n int) func(witness.View) bool {
	return func(v witness.View) bool { return v.Updated >= n }
}

// longestGap is the longest time between an update and the next, of the gaps that ended
// after a moment.
func longestGap(updates []witness.Update, after time.Time) (longest time.Duration) {
	slices.SortFunc(updates, func(a, b witness.Update) int { return a.At.Compare(b.At) })
	for i := 1; i < len(updates); i++ {
		if updates[i].At.After(after) {
			longest = max(longest, updates[i].At.Sub(updates[i-1].At))
		}
	}
	return longest
}
