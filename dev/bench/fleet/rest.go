package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/dev/bench/figures"
)

// restWindow is large: what is measured comes after the rollout.
const restWindow = "50%"

// rest measures what sets cost when all is rolled out.
type rest struct {
	pods, sets, workers int
	settle, duration    time.Duration
}

func newRest() *cobra.Command {
	b := &rest{}
	cmd := subcommand("rest", "Measure what SidecarSets cost when all is rolled out", b)
	cmd.Flags().IntVar(&b.pods, "pods", 10000, "number of pods, in all")
	cmd.Flags().IntVar(&b.sets, "sets", 500, "number of SidecarSets")
	cmd.Flags().IntVar(&b.workers, "workers", 1, "number of workers")
	cmd.Flags().DurationVar(&b.settle, "settle", 20*time.Second, "wait for this long after the last run has ended")
	cmd.Flags().DurationVar(&b.duration, "duration", 2*time.Minute, "measure for this long")
	return cmd
}

func (b *rest) check() error {
	if b.duration <= 0 {
		return fmt.Errorf("--duration %s: more than 0", b.duration)
	}
	if err := positive("workers", b.workers); err != nil {
		return err
	}
	return checkSets(b.sets, b.pods, restWindow)
}

func (b *rest) run(ctx context.Context, out io.Writer) error {
	f, err := startFleet(ctx, b.pods, b.workers)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.populate(ctx, newSets("set", b.sets, intstr.Parse(restWindow)), b.pods/b.sets); err != nil {
		return err
	}
	if _, _, err := f.rollOut(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, b.settle); err != nil {
		return err
	}
	before, err := figures.Take(ctx, f.Stack)
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.duration); err != nil {
		return err
	}
	after, err := figures.Take(ctx, f.Stack)
	if err != nil {
		return err
	}
	resident, peak, err := figures.RoleMemory(f.Stack)
	if err != nil {
		return err
	}
	used := after.Since(before)
	var lines figures.Lines
	lines.Add("sets", "%d", b.sets)
	lines.Add("pods", "%d", f.pods)
	lines.Seconds("seconds at rest", used.Took)
	lines.Each("API writes", "%.0f", used.Writes)
	lines.Each("API reads and opened watches", "%.0f", used.Reads)
	lines.Each("calls to Temporal", "%.0f", used.TemporalRequests)
	lines.Each("percent of a core", "%.1f", figures.Scaled(used.Processor, 100/used.Took.Seconds()))
	lines.Each("memory, MiB", "%.0f", resident)
	lines.Each("peak memory, MiB", "%.0f", peak)
	f.failedLine(&lines)
	_, err = io.WriteString(out, lines.String())
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
