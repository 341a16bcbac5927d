package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// fleet measures many SidecarSets. It measures their creation, their rollouts at the same time,
// and the resources that the roles use afterwards.
type fleet struct {
	sizes
	maxUnavailablePods int
	settle, rest       time.Duration

	h     *harness
	lines report
}

func newFleet() *cobra.Command {
	b := &fleet{sizes: sizes{pods: 5000, sets: 50, workers: 2, window: "10%"}}
	cmd := subcommand("fleet", "Measure many SidecarSets: creation, rollouts, and rest", b)
	b.addFlags(cmd)
	cmd.Flags().IntVar(&b.maxUnavailablePods, "max-unavailable-pods", 0, "flag of the workers; fail when more pods were in flight; 0: none")
	cmd.Flags().DurationVar(&b.settle, "settle", 20*time.Second, "wait for this long between the rollouts and the rest")
	cmd.Flags().DurationVar(&b.rest, "rest", 0, "measure for this long what the SidecarSets cost after their rollouts")
	return cmd
}

func (b *fleet) run(ctx context.Context, out io.Writer) (err error) {
	var flags []string
	if b.maxUnavailablePods > 0 {
		flags = append(flags, fmt.Sprintf("--max-unavailable-pods=%d", b.maxUnavailablePods))
	}
	if b.h, err = startHarness(ctx, b.pods); err != nil {
		return err
	}
	defer b.h.close()
	if err := b.h.startRoles(ctx, b.workers, flags...); err != nil {
		return err
	}
	b.lines.add("sets", "%d", b.sets)
	b.lines.add("pods", "%d", b.pods)
	if err := b.create(ctx); err != nil {
		return err
	}
	if b.pods > 0 {
		if err := b.rollOut(ctx); err != nil {
			return err
		}
	}
	if b.rest > 0 {
		if err := b.measureRest(ctx); err != nil {
			return err
		}
	}
	b.lines.failures(b.h)
	if _, err := io.WriteString(out, b.lines.String()); err != nil {
		return err
	}
	if worst, event := b.h.watched.Worst(); b.maxUnavailablePods > 0 && worst > b.maxUnavailablePods {
		return fmt.Errorf("%d pods were in flight at once (%s), more than --max-unavailable-pods %d", worst, event, b.maxUnavailablePods)
	}
	return nil
}

// create measures the creation of the SidecarSets, which have no pods yet.
func (b *fleet) create(ctx context.Context) error {
	before, err := b.h.sample(ctx)
	if err != nil {
		return err
	}
	sets := b.h.newSets("set", b.sets, b.window)
	for _, phase := range []struct {
		name  string
		await func() error
	}{
		{"until all are accepted, seconds", func() error { return b.h.eachSet(ctx, sets, b.h.apply) }},
		{"until all are observed, seconds", func() error { return b.h.awaitObserved(ctx, b.sets) }},
		{"until all runs have ended, seconds", func() error { return b.h.awaitEnd(ctx, b.sets) }},
	} {
		if err := phase.await(); err != nil {
			return err
		}
		b.lines.seconds(phase.name, time.Since(before.at))
	}
	after, err := b.h.sample(ctx)
	if err != nil {
		return err
	}
	used, each := after.since(before), 1/float64(b.sets)
	b.lines.each("processor milliseconds a set", "%.1f", scaled(used.processor, 1000*each))
	b.lines.each("API writes a set", "%.2f", scaled(used.writes, each))
	b.lines.each("calls to Temporal a set", "%.2f", scaled(used.temporalRequests, each))
	b.h.sets = sets
	b.h.progress("SidecarSets are created")
	return nil
}

// apply creates a SidecarSet with the requests of kubectl apply. The requests are a read, and a
// create with the applied content in an annotation.
func (h *harness) apply(ctx context.Context, set *v1alpha1.SidecarSet) error {
	err := h.stack.Kube.Get(ctx, client.ObjectKeyFromObject(set), &v1alpha1.SidecarSet{})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read it: %w", err)
	}
	content, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	applied := set.DeepCopy()
	applied.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: string(content)}
	return h.stack.Kube.Create(ctx, applied, client.FieldOwner("kubectl-client-side-apply"))
}

func (b *fleet) rollOut(ctx context.Context) error {
	h := b.h
	if err := h.createPods(ctx, b.pods); err != nil {
		return err
	}
	rolled, err := h.rollOut(ctx)
	if err != nil {
		return err
	}
	worst, _ := h.watched.Worst()
	_, served := h.watched.Updates()
	b.lines.seconds("seconds", rolled.took)
	for _, percent := range []int{50, 100} {
		reached := reachedBySet(served, rolled.began, h.pods/b.sets, percent)
		for i, name := range []string{"first set", "median set", "last set"} {
			b.lines.seconds(fmt.Sprintf("until %d %%, %s, seconds", percent, name), reached[i*(len(reached)-1)/2])
		}
	}
	b.lines.add("most in flight at once", "%d", worst)
	b.lines.each("API writes a pod", "%.3f", scaled(rolled.writes, 1/float64(h.pods)))
	b.lines.each("calls to Temporal a pod", "%.3f", scaled(rolled.temporalRequests, 1/float64(h.pods)))
	b.lines.each("processor seconds", "%.1f", rolled.processor)
	return nil
}

// reachedBySet returns, for each SidecarSet, the time until a percentage of its pods served with
// the new image. The times are sorted.
func reachedBySet(served []observer.Update, began time.Time, pods, percent int) []time.Duration {
	seen := map[string]int{}
	var reached []time.Duration
	for _, update := range served {
		set := update.Labels[appLabel]
		seen[set]++
		if seen[set] == (pods*percent+99)/100 {
			reached = append(reached, update.At.Sub(began))
		}
	}
	slices.Sort(reached)
	return reached
}

func (b *fleet) measureRest(ctx context.Context) error {
	var samples []sample
	for _, pause := range []time.Duration{b.settle, b.rest} {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next, err := b.h.sample(ctx)
		if err != nil {
			return err
		}
		samples = append(samples, next)
	}
	used, took := samples[1].since(samples[0]), samples[1].at.Sub(samples[0].at)
	b.lines.seconds("seconds at rest", took)
	b.lines.each("at rest, API writes", "%.0f", used.writes)
	b.lines.each("at rest, API reads and opened watches", "%.0f", used.reads)
	b.lines.each("at rest, calls to Temporal", "%.0f", used.temporalRequests)
	b.lines.each("at rest, percent of a core", "%.1f", scaled(used.processor, 100/took.Seconds()))
	b.lines.each("memory, MiB", "%.0f", used.resident)
	b.lines.each("peak memory, MiB", "%.0f", used.peak)
	return nil
}
