package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/procfs"

	"github.com/outrigger/outrigger/dev/cluster"
)

// self is the name of this process in a sample. This process contains the watch of the pods, and the clients.
const self = "bench"

// sample contains the resources that the processes of a cluster have used so far, or between two
// samples.
type sample struct {
	at time.Time
	// processor is the CPU time of each process, in seconds.
	processor map[string]float64
	// resident and peak are the current and the maximum memory of each role, in MiB.
	resident, peak map[string]float64
	// writes and reads are the numbers of requests of each role to the API server. A new watch counts as one
	// read.
	writes, reads map[string]float64
	// temporalRequests is the number of calls of each role to Temporal, without long polls.
	temporalRequests map[string]float64
	// heartbeats is the number of activity heartbeats that the frontend of Temporal received.
	heartbeats float64
}

// usage contains the resources that one process has used. The CPU time is in seconds, the memory in
// MiB.
type usage struct{ processor, resident, peak float64 }

func usageOf(pid int) (usage, error) {
	const mebibyte = 1 << 20
	process, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, err
	}
	stat, err := process.Stat()
	if err != nil {
		return usage{}, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return usage{}, err
	}
	return usage{stat.CPUTime(), float64(status.VmRSS) / mebibyte, float64(status.VmHWM) / mebibyte}, nil
}

func newSample() sample {
	return sample{
		processor: map[string]float64{}, resident: map[string]float64{}, peak: map[string]float64{},
		writes: map[string]float64{}, reads: map[string]float64{}, temporalRequests: map[string]float64{},
	}
}

// sample reads the resources that the processes of the cluster have used so far.
func (h *harness) sample(ctx context.Context) (sample, error) {
	s := newSample()
	for _, role := range h.stack.Roles() {
		families, err := cluster.Scrape(ctx, role.Metrics)
		if err != nil {
			return s, fmt.Errorf("%s: %w", role.Name, err)
		}
		s.writes[role.Name], s.reads[role.Name], s.resident[role.Name] = 0, 0, 0
		for _, metric := range families["rest_client_requests_total"].GetMetric() {
			requests := s.writes
			if label(metric, "method") == http.MethodGet {
				requests = s.reads
			}
			requests[role.Name] += metric.GetCounter().GetValue()
		}
		for _, metric := range families["temporal_request_total"].GetMetric() {
			s.temporalRequests[role.Name] += metric.GetCounter().GetValue()
		}
	}
	families, err := cluster.Scrape(ctx, h.stack.TemporalMetrics)
	if err != nil {
		return s, fmt.Errorf("read the metrics of Temporal: %w", err)
	}
	for _, metric := range families["service_requests"].GetMetric() {
		// The frontend forwards heartbeats to the history service, and the history service counts the same
		// heartbeats again. Therefore, only the count of the frontend is used.
		if label(metric, "operation") == "RecordActivityTaskHeartbeat" && label(metric, "service_name") == "frontend" {
			s.heartbeats += metric.GetCounter().GetValue()
		}
	}
	return s, h.sampleProcesses(&s)
}

// sampleProcesses reads the CPU time and the memory of each process.
func (h *harness) sampleProcesses(s *sample) error {
	pids := map[string]int{self: os.Getpid()}
	for _, status := range h.stack.Processes() {
		if status.Running {
			pids[status.Name] = status.PID
		}
	}
	for name, pid := range pids {
		used, err := usageOf(pid)
		if err != nil {
			return fmt.Errorf("read what %s has used: %w", name, err)
		}
		s.processor[name] = used.processor
		if _, isRole := s.resident[name]; isRole {
			s.resident[name], s.peak[name] = used.resident, used.peak
		}
	}
	s.at = time.Now()
	return nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// since returns the resources that were used after the sample before. The memory is not a difference: since
// returns the memory of s.
func (s sample) since(before sample) sample {
	s.processor = difference(before.processor, s.processor)
	s.writes, s.reads = difference(before.writes, s.writes), difference(before.reads, s.reads)
	s.temporalRequests = difference(before.temporalRequests, s.temporalRequests)
	s.heartbeats -= before.heartbeats
	return s
}

// difference returns the increase of each value.
func difference(before, after map[string]float64) map[string]float64 {
	gained := make(map[string]float64, len(after))
	for key, value := range after {
		gained[key] = value - before[key]
	}
	return gained
}

func scaled(values map[string]float64, by float64) map[string]float64 {
	product := make(map[string]float64, len(values))
	for key, value := range values {
		product[key] = value * by
	}
	return product
}

// report contains one statistic on each line, so that diff can compare two reports.
type report struct{ strings.Builder }

func (r *report) add(name, format string, args ...any) {
	_, _ = fmt.Fprintf(r, "%-52s "+format+"\n", append([]any{name}, args...)...)
}

func (r *report) seconds(name string, d time.Duration) { r.add(name, "%.1f", d.Seconds()) }

// each adds a line for each key, sorted, as "name, key".
func (r *report) each(name, format string, values map[string]float64) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		r.add(name+", "+key, format, values[key])
	}
}
