package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"
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
			s := &soak{every: max(duration/180, time.Second)}
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

// soak samples metrics that could grow.
type soak struct {
	every time.Duration
	mu    sync.Mutex
	// series are the samples by metric.
	series map[string][]float64
	// upgrades is the number of upgrades seen until each sample.
	upgrades []float64
}

// sample measures at every tick, until stop.
func (s *soak) sample(ctx context.Context, w *fixture) (stop func()) {
	s.series = map[string][]float64{}
	ctx, cancel := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := s.take(ctx, w); err != nil && ctx.Err() == nil {
					w.say("no sample: %s", err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		sampling.Wait()
	}
}

// processMetrics are the metrics of each role, with the names of their series.
func processMetrics() map[string]string {
	return map[string]string{"go_goroutines": "goroutines", "process_open_fds": "open files", "process_resident_memory_bytes": "memory"}
}

// take measures once; a sample is kept whole or not at all.
func (s *soak) take(ctx context.Context, w *fixture) error {
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
	s.mu.Lock()
	defer s.mu.Unlock()
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
