package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/bench/figures"
)

// idleSets measures a rollout alone, beside sets that select no pods, and alone again,
// since a cluster grows slower with what it has seen.
type idleSets struct {
	pods, sets, workers int
	window              string
}

func newIdleSets() *cobra.Command {
	b := &idleSets{}
	cmd := subcommand("idle-sets", "Measure a rollout alone, and beside idle SidecarSets", b)
	cmd.Flags().IntVar(&b.pods, "pods", 1000, "pods that are rolled out")
	cmd.Flags().IntVar(&b.sets, "sets", 1000, "SidecarSets without pods")
	cmd.Flags().StringVar(&b.window, "window", "10%", "maxUnavailable: number or percent")
	cmd.Flags().IntVar(&b.workers, "workers", 1, "number of workers")
	return cmd
}

func (b *idleSets) check() error {
	if err := positive("sets", b.sets); err != nil {
		return err
	}
	if err := positive("workers", b.workers); err != nil {
		return err
	}
	return checkSets(1, b.pods, b.window)
}

func (b *idleSets) run(ctx context.Context, out io.Writer) error {
	f, err := startFleet(ctx, b.pods, b.workers)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.populate(ctx, newSets("rolled", 1, intstr.Parse(b.window)), b.pods); err != nil {
		return err
	}
	// The first rollout of a pod's life costs a write more than the later ones.
	if _, _, err := f.rollOut(ctx); err != nil {
		return fmt.Errorf("first rollout: %w", err)
	}
	before, _, err := f.rollOut(ctx)
	if err != nil {
		return fmt.Errorf("rollout alone: %w", err)
	}
	idle := newSets("idle", b.sets, intstr.Parse(b.window))
	if err := f.createIdle(ctx, idle); err != nil {
		return err
	}
	beside, _, err := f.rollOut(ctx)
	if err != nil {
		return fmt.Errorf("rollout beside idle sets: %w", err)
	}
	if err := f.deleteIdle(ctx, idle); err != nil {
		return err
	}
	after, _, err := f.rollOut(ctx)
	if err != nil {
		return fmt.Errorf("rollout alone again: %w", err)
	}
	lines := b.lines(before, beside, after)
	f.failedLine(lines)
	_, err = io.WriteString(out, lines.String())
	return err
}

func (b *idleSets) lines(before, beside, after figures.Sample) *figures.Lines {
	lines := &figures.Lines{}
	lines.Add("pods", "%d", b.pods)
	lines.Add("idle sets", "%d", b.sets)
	lines.Seconds("alone before, seconds", before.Took)
	lines.Seconds("beside idle sets, seconds", beside.Took)
	lines.Seconds("alone after, seconds", after.Took)
	lines.Add("times alone", "%.2f", 2*beside.Took.Seconds()/(before.Took+after.Took).Seconds())
	for _, name := range slices.Sorted(maps.Keys(beside.Processor)) {
		lines.Add("processor seconds, "+name, "%.1f (alone %.1f, %.1f)", beside.Processor[name], before.Processor[name], after.Processor[name])
	}
	for _, name := range slices.Sorted(maps.Keys(beside.Writes)) {
		lines.Add("API writes, "+name, "%.0f (alone %.0f, %.0f)", beside.Writes[name], before.Writes[name], after.Writes[name])
	}
	return lines
}

// createIdle creates sets beside those that have pods, and waits until their runs have ended.
func (f *fleet) createIdle(ctx context.Context, sets []*v1alpha1.SidecarSet) error {
	err := f.eachSet(ctx, sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error { return f.Kube.Create(ctx, set) })
	if err != nil {
		return err
	}
	f.idle += len(sets)
	return f.runs.awaitEnd(ctx, len(f.sets)+f.idle)
}

// deleteIdle deletes such sets.
func (f *fleet) deleteIdle(ctx context.Context, sets []*v1alpha1.SidecarSet) error {
	err := f.eachSet(ctx, sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error { return f.Kube.Delete(ctx, set) })
	if err != nil {
		return err
	}
	f.idle -= len(sets)
	return f.runs.awaitEnd(ctx, len(f.sets)+f.idle)
}
