package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/dev/cluster"
)

// soakGap is long enough for rollouts to complete.
const soakGap = 4 * time.Second

func soakCommand() *cobra.Command {
	var o options
	var duration time.Duration
	cmd := &cobra.Command{
		Use: "soak", Short: "Edit for a long time with mild faults and see what grows", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.gap = soakGap
			o.faults = int(duration / soakGap)
			plan := Plan(o.seed, o.faults, o.gap, mildRules(setNames(), deploymentNames()))
			s := &soak{every: max(duration/180, time.Second), series: map[string][]float64{}}
			if err := inFolder(cmd.Context(), o, plan, cmd.OutOrStdout(), s.sample); err != nil {
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

// soak samples metrics that show growth.
type soak struct {
	every time.Duration
	// series are the samples by metric.
	series map[string][]float64
	// upgrades contains the number of observed upgrades at each sample.
	upgrades []float64
}

// sample takes a sample at every interval, until ctx ends.
func (s *soak) sample(ctx context.Context, w *fixture) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.measure(ctx, w); err != nil && ctx.Err() == nil {
			w.say("no sample: %s", err)
		}
	}, s.every)
}

// processMetrics returns the sampled metrics of each role, with the names of their series.
func processMetrics() map[string]string {
	return map[string]string{"go_goroutines": "goroutines", "process_open_fds": "open files", "process_resident_memory_bytes": "memory"}
}

// measure takes one sample. If a metric cannot be read, no value of the sample is stored.
func (s *soak) measure(ctx context.Context, w *fixture) error {
	now := map[string]float64{}
	for _, role := range w.Roles() {
		families, err := cluster.Scrape(ctx, http.DefaultClient, role.Metrics)
		if err != nil {
			return err
		}
		for metric, name := range processMetrics() {
			now[name+" of "+role.Name] = total(families[metric])
		}
	}
	watches, err := w.watches(ctx)
	if err != nil {
		return err
	}
	now["watches at the API server"] = watches
	for name, pattern := range map[string]string{"database of Temporal": "temporal.db*", "database of etcd": "etcd/member/snap/db"} {
		if now[name], err = bytesOf(filepath.Join(w.dir, "stack", pattern)); err != nil {
			return err
		}
	}
	for name, value := range now {
		s.series[name] = append(s.series[name], value)
	}
	s.upgrades = append(s.upgrades, float64(len(w.observer.Upgrades())))
	return nil
}

func total(family *dto.MetricFamily) (sum float64) {
	for _, metric := range family.GetMetric() {
		sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
	}
	return sum
}

func bytesOf(pattern string) (sum float64, err error) {
	files, err := filepath.Glob(pattern)
	for _, file := range files {
		info, failed := os.Stat(file)
		if failed != nil {
			return 0, fmt.Errorf("size of a database: %w", failed)
		}
		sum += float64(info.Size())
	}
	return sum, err
}

// watches counts the open watches at the API server.
func (w *fixture) watches(ctx context.Context) (float64, error) {
	config, err := w.RESTConfig()
	if err != nil {
		return 0, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	families, err := cluster.Scrape(ctx, client, "https://"+w.apiServer+"/metrics")
	if err != nil {
		return 0, err
	}
	open := 0.0
	for _, metric := range families["apiserver_longrunning_requests"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "verb" && strings.EqualFold(label.GetValue(), "watch") {
				open += metric.GetGauge().GetValue()
			}
		}
	}
	return open, nil
}

// minSamples is the number of samples that are needed to distinguish growth from noise.
const minSamples = 20

// tolerance is the accepted difference between the means of the second and the first half. It is
// the sum of share, relative to the first mean, and of the absolute number more, which matters
// for small means.
type tolerance struct{ share, more float64 }

func toleranceOf(name string) tolerance {
	switch {
	case strings.HasPrefix(name, "goroutines"):
		return tolerance{0.10, 20}
	case strings.HasPrefix(name, "open files"):
		return tolerance{0.10, 5}
	case strings.HasPrefix(name, "memory"):
		return tolerance{0.20, 16 << 20}
	case strings.HasPrefix(name, "database"):
		return tolerance{0.25, 256}
	}
	return tolerance{0.10, 5}
}

// judge compares the second half of each series with the first half, and prints whether the
// series grows. It returns an error if a series grows. The first tenth of the samples is ignored,
// because caches fill at the start. Databases store histories until the end of their retention,
// so judge compares their bytes per upgrade of a pod.
func (s *soak) judge(out io.Writer) error {
	if n := len(s.upgrades); n < minSamples {
		return fmt.Errorf("soak: only %d samples, %d are needed; run for longer", n, minSamples)
	}
	warm := len(s.upgrades) / 10
	half := warm + (len(s.upgrades)-warm)/2
	var grown []error
	for _, name := range slices.Sorted(maps.Keys(s.series)) {
		values, allowed := s.series[name], toleranceOf(name)
		first, second := mean(values[warm:half]), mean(values[half:])
		if strings.HasPrefix(name, "database") {
			first, second = perUpgrade(values[warm:half], s.upgrades[warm:half]), perUpgrade(values[half:], s.upgrades[half:])
			name += ", bytes an upgrade"
		}
		verdict := "flat"
		if second > first*(1+allowed.share)+allowed.more {
			verdict = "GROWS"
			grown = append(grown, fmt.Errorf("soak: %s grows from %.0f to %.0f", name, first, second))
		}
		if _, err := fmt.Fprintf(out, "%-32s %14.0f %14.0f  %s (+%.0f%% and %.0f allowed)\n", name, first, second, verdict, 100*allowed.share, allowed.more); err != nil {
			return err
		}
	}
	return errors.Join(grown...)
}

func perUpgrade(bytes, upgrades []float64) float64 {
	last := len(bytes) - 1
	return max(bytes[last]-bytes[0], 0) / max(upgrades[last]-upgrades[0], 1)
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}
