package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/bench/figures"
)

// createSets measures what it takes to create sets that select no pods.
type createSets struct{ sets, workers int }

func newCreateSets() *cobra.Command {
	b := &createSets{}
	cmd := subcommand("create-sets", "Measure the creation of SidecarSets", b)
	cmd.Flags().IntVar(&b.sets, "sets", 500, "number of SidecarSets")
	cmd.Flags().IntVar(&b.workers, "workers", 1, "number of workers")
	return cmd
}

func (b *createSets) check() error {
	if err := positive("sets", b.sets); err != nil {
		return err
	}
	return positive("workers", b.workers)
}

func (b *createSets) run(ctx context.Context, out io.Writer) error {
	f, err := startFleet(ctx, 0, b.workers)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := figures.Take(ctx, f.Stack)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.eachSet(ctx, newSets("idle", b.sets, intstr.FromString("10%")), f.apply); err != nil {
		return err
	}
	accepted := time.Since(began)
	if err := f.runs.awaitSets(ctx, b.sets); err != nil {
		return err
	}
	if err := f.runs.awaitObserved(ctx); err != nil {
		return err
	}
	observed := time.Since(began)
	if err := f.runs.awaitEnd(ctx, b.sets); err != nil {
		return err
	}
	ended := time.Since(began)
	after, err := figures.Take(ctx, f.Stack)
	if err != nil {
		return err
	}
	used, each := after.Since(before), 1/float64(b.sets)
	var lines figures.Lines
	lines.Add("sets", "%d", b.sets)
	lines.Add("clients", "%d", parallel)
	lines.Seconds("until all are accepted, seconds", accepted)
	lines.Seconds("until all are observed, seconds", observed)
	lines.Seconds("until all runs have ended, seconds", ended)
	lines.Each("processor milliseconds a set", "%.1f", figures.Scaled(used.Processor, 1000*each))
	lines.Each("API writes a set", "%.2f", figures.Scaled(used.Writes, each))
	lines.Each("calls to Temporal a set", "%.2f", figures.Scaled(used.TemporalRequests, each))
	f.failedLine(&lines)
	_, err = io.WriteString(out, lines.String())
	return err
}

// apply creates a set with the requests of kubectl apply: it looks for it, and creates it
// with what was applied as an annotation.
func (f *fleet) apply(ctx context.Context, set *v1alpha1.SidecarSet) error {
	err := f.Kube.Get(ctx, client.ObjectKeyFromObject(set), &v1alpha1.SidecarSet{})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for it: %w", err)
	}
	content, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	applied := set.DeepCopy()
	applied.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: string(content)}
	return f.Kube.Create(ctx, applied, client.FieldOwner("kubectl-client-side-apply"))
}
