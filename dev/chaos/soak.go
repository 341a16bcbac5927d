package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/outrigger/outrigger/dev/cluster"
)

const (
	// soakGap is the mean time between two faults. Rollouts can complete in this time.
	soakGap = 4 * time.Second
	// minSamples is the number of samples that are needed to distinguish growth from noise.
	minSamples = 20
)

func soakCommand() *cobra.Command {
	o := options{gap: soakGap, rules: mildRules(setNames(), deploymentNames())}
	var duration time.Duration
	cmd := &cobra.Command{
		Use: "soak", Short: "Edit for a long time with mild faults and see what grows", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.faults = int(duration / soakGap)
			s := soak{}
			o.during = func(ctx context.Context, w *fixture) {
				wait.UntilWithContext(ctx, func(ctx context.Context) { s.sample(ctx, w) }, max(duration/180, time.Second))
			}
			if err := run(cmd.Context(), o, cmd.OutOrStdout()); err != nil {
				return err
			}
			return s.judge(cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&duration, "duration", 30*time.Minute, "for how long")
	cmd.Flags().Uint64Var(&o.seed, "seed", 1, "draw edits and faults from this")
	cmd.Flags().IntVar(&o.pods, "pods", 120, "on simulated nodes")
	return cmd
}

// soak maps "<metric> <role>" to the samples.
type soak map[string][]float64

// tolerances returns the sampled metrics. The mean of the second half of the samples may exceed
// the mean of the first half by a tenth plus the tolerance of the metric.
func tolerances() map[string]float64 {
	return map[string]float64{"go_goroutines": 20, "process_open_fds": 5, "process_resident_memory_bytes": 24 << 20}
}

// sample records the value of each metric of each role, and skips roles that do not respond.
func (s soak) sample(ctx context.Context, w *fixture) {
	for _, role := range w.Roles() {
		families, err := cluster.Scrape(ctx, role.Metrics)
		if err != nil {
			w.say("no sample of %s: %s", role.Name, err)
			continue
		}
		for metric := range tolerances() {
			for _, value := range families[metric].GetMetric() {
				key := metric + " " + role.Name
				s[key] = append(s[key], value.GetGauge().GetValue())
			}
		}
	}
}

// judge compares the second half of each series with the first half, and returns an error if a
// series grows. The first tenth of the samples is ignored, because caches fill at the start.
func (s soak) judge(out io.Writer) error {
	var grown []error
	if len(s) == 0 {
		return errors.New("soak: no samples")
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		metric, _, _ := strings.Cut(key, " ")
		values := s[key]
		if len(values) < minSamples {
			return fmt.Errorf("soak: only %d samples of %s, %d are needed; run for longer", len(values), key, minSamples)
		}
		values = values[len(values)/10:]
		first, second := mean(values[:len(values)/2]), mean(values[len(values)/2:])
		if second > first*1.1+tolerances()[metric] {
			grown = append(grown, fmt.Errorf("soak: %s grows from %.0f to %.0f", key, first, second))
		}
		if _, err := fmt.Fprintf(out, "%-40s %14.0f %14.0f\n", key, first, second); err != nil {
			return err
		}
	}
	return errors.Join(grown...)
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}
