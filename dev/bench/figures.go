package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// figures of one rollout.
type figures struct {
	pods, window, worst int
	took                time.Duration
	// before and after are the ideal mover's; nil: it did not go.
	before, after *idealMove
	// processors is the processor time of each process during the rollout, in seconds.
	processors                map[string]float64
	batches, events, failures int
	actions                   actions
	restarts                  int32
	writes, memory            map[string]float64
}

// String prints one figure a line, so that runs can be compared by diff.
func (f *figures) String() string {
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-38s "+format+"\n", append([]any{name}, args...)...)
	}
	line("pods", "%d", f.pods)
	line("window", "%d", f.window)
	line("seconds", "%.1f", f.took.Seconds())
	if f.before != nil {
		line("ideal mover before, seconds", "%.1f", f.before.took.Seconds())
		line("ideal mover after, seconds", "%.1f", f.after.took.Seconds())
		line("times the ideal", "%.2f", timesIdeal(f))
	}
	line("most in flight at once", "%d", f.worst)
	line("app containers restarted", "%d", f.restarts)
	line("batches", "%d", f.batches)
	line("history events", "%d", f.events)
	line("history events a pod", "%.3f", float64(f.events)/float64(f.pods))
	line("actions of Temporal Cloud", "%d", f.actions.total())
	line("  of them heartbeats", "%d", f.actions.heartbeats)
	line("  of them activities", "%d", f.actions.activities)
	line("actions a pod", "%.3f", float64(f.actions.total())/float64(f.pods))
	line("workflow task failures", "%d", f.failures)
	for _, role := range slices.Sorted(maps.Keys(f.writes)) {
		line("API writes a pod, "+role, "%.3f", f.writes[role]/float64(f.pods))
	}
	for _, role := range slices.Sorted(maps.Keys(f.memory)) {
		line("peak memory, MiB, "+role, "%.0f", f.memory[role])
	}
	for _, name := range slices.Sorted(maps.Keys(f.processors)) {
		if f.before == nil {
			line("processor seconds, "+name, "%.1f", f.processors[name])
			continue
		}
		line("processor seconds, "+name, "%.1f (ideal %.1f, %.1f)", f.processors[name], f.before.processors[name], f.after.processors[name])
	}
	return out.String()
}

// timesIdeal compares rollouts with what the ideal mover took around them.
func timesIdeal(rounds ...*figures) float64 {
	var took, ideal time.Duration
	for _, f := range rounds {
		took += f.took
		ideal += (f.before.took + f.after.took) / 2
	}
	return took.Seconds() / ideal.Seconds()
}

// sent is what processes have counted since their start.
type sent struct {
	// writes that each role sent to the API server.
	writes map[string]float64
	// heartbeats that Temporal's frontend was sent.
	heartbeats float64
}

func (b *bench) sent(ctx context.Context) (sent, error) {
	writes, err := b.writes(ctx)
	if err != nil {
		return sent{}, err
	}
	families, err := scrape(ctx, b.stack.TemporalMetrics)
	if err != nil {
		return sent{}, fmt.Errorf("read the metrics of Temporal: %w", err)
	}
	counted := sent{writes: writes}
	for _, metric := range families["service_requests"].GetMetric() {
		if isHeartbeat(metric) {
			counted.heartbeats += metric.GetCounter().GetValue()
		}
	}
	return counted, nil
}

// writes reads from each role's metrics how many writes it sent to the API server.
func (b *bench) writes(ctx context.Context) (map[string]float64, error) {
	sent := map[string]float64{}
	for _, role := range b.stack.Roles() {
		families, err := scrape(ctx, role.Metrics)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of %s: %w", role.Name, err)
		}
		sent[role.Name] = 0
		for _, metric := range families["rest_client_requests_total"].GetMetric() {
			if isWrite(metric) {
				sent[role.Name] += metric.GetCounter().GetValue()
			}
		}
	}
	return sent, nil
}

func isWrite(metric *dto.Metric) bool {
	for _, label := range metric.GetLabel() {
		if label.GetName() == "method" {
			return slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, label.GetValue())
		}
	}
	return false
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// memory reads the peak resident size of each role, in MiB.
func (b *bench) memory() (map[string]float64, error) {
	peaks := map[string]float64{}
	for _, role := range b.stack.Roles() {
		status, err := b.stack.Process(role.Name)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", status.PID))
		if err != nil {
			return nil, fmt.Errorf("read the memory of %s: %w", role.Name, err)
		}
		for row := range strings.Lines(string(text)) {
			if fields := strings.Fields(row); len(fields) == 3 && fields[0] == "VmHWM:" {
				kib, err := strconv.ParseFloat(fields[1], 64)
				if err != nil {
					return nil, fmt.Errorf("read the memory of %s: %w", role.Name, err)
				}
				peaks[role.Name] = kib / 1024
			}
		}
	}
	return peaks, nil
}
