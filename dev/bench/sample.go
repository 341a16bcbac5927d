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

// self is the name of this process in a sample. This process runs the watch of the pods and the clients.
const self = "bench"

// These are the resources in a sample. Only roles have values for memory, requests and calls.
const (
	// processor is the CPU time, in seconds.
	processor = "processor"
	// resident and peak are the current and the maximum memory, in MiB.
	resident, peak = "resident", "peak"
	// writes and reads are the numbers of requests to the API server. A new watch counts as one read.
	writes, reads = "writes", "reads"
	// calls is the number of calls to Temporal, without long polls.
	calls = "calls"
	// heartbeats is the number of activity heartbeats that the frontend of Temporal received.
	heartbeats = "heartbeats"
)

// sample contains the resource usage of the processes of a cluster at a point in time. The usage is indexed by
// the name of the resource and the name of the process.
type sample struct {
	at time.Time
	of map[string]map[string]float64
}

func (s *sample) add(resource, process string, value float64) {
	if s.of == nil {
		s.of = map[string]map[string]float64{}
	}
	if s.of[resource] == nil {
		s.of[resource] = map[string]float64{}
	}
	s.of[resource][process] += value
}

// sample reads the current resource usage of the processes of the cluster.
func (h *harness) sample(ctx context.Context) (s sample, err error) {
	for _, role := range h.stack.Roles() {
		families, err := cluster.Scrape(ctx, role.Metrics)
		if err != nil {
			return s, fmt.Errorf("%s: %w", role.Name, err)
		}
		s.add(writes, role.Name, 0)
		s.add(reads, role.Name, 0)
		for _, metric := range families["rest_client_requests_total"].GetMetric() {
			requests := writes
			if label(metric, "method") == http.MethodGet {
				requests = reads
			}
			s.add(requests, role.Name, metric.GetCounter().GetValue())
		}
		for _, metric := range families["temporal_request_total"].GetMetric() {
			s.add(calls, role.Name, metric.GetCounter().GetValue())
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
			s.add(heartbeats, cluster.Temporal, metric.GetCounter().GetValue())
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
		if err := s.addProcess(name, pid); err != nil {
			return fmt.Errorf("read what %s has used: %w", name, err)
		}
	}
	s.at = time.Now()
	return nil
}

func (s *sample) addProcess(name string, pid int) error {
	const mebibyte = 1 << 20
	process, err := procfs.NewProc(pid)
	if err != nil {
		return err
	}
	stat, err := process.Stat()
	if err != nil {
		return err
	}
	status, err := process.NewStatus()
	if err != nil {
		return err
	}
	s.add(processor, name, stat.CPUTime())
	if _, isRole := s.of[writes][name]; isRole {
		s.add(resident, name, float64(status.VmRSS)/mebibyte)
		s.add(peak, name, float64(status.VmHWM)/mebibyte)
	}
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

// since returns the increase of each value since the sample before.
func (s sample) since(before sample) map[string]map[string]float64 {
	var used sample
	for resource, values := range s.of {
		for process, value := range values {
			used.add(resource, process, value-before.of[resource][process])
		}
	}
	return used.of
}

// report contains one statistic on each line, so that diff can compare two reports.
type report struct{ strings.Builder }

func (r *report) add(name, format string, args ...any) {
	_, _ = fmt.Fprintf(r, "%-52s "+format+"\n", append([]any{name}, args...)...)
}

func (r *report) seconds(name string, d time.Duration) { r.add(name, "%.1f", d.Seconds()) }

// each adds a line with the name "name, key" for each key, in sorted order. The number in the line is the value
// multiplied by factor.
func (r *report) each(name, format string, values map[string]float64, factor float64) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		r.add(name+", "+key, format, values[key]*factor)
	}
}
