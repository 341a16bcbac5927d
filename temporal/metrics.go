package temporal

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// Labels that the SDK's metrics keep. Its other tags are dropped: they say the same
// for all of a process, or anything that a caller names.
const (
	labelOperation    = "operation"
	labelStatusCode   = "status_code"
	labelTaskQueue    = "task_queue"
	labelWorkerType   = "worker_type"
	labelPollerType   = "poller_type"
	labelActivityType = "activity_type"
	labelReason       = "failure_reason"
)

// sdkMetric is one of the SDK's. Its name in Prometheus gets the suffix _total or
// _seconds, as in Temporal's own dashboards.
type sdkMetric struct {
	name, help string
	labels     []string
}

func sdkCounters() []sdkMetric {
	return []sdkMetric{
		{"temporal_request", "Calls to Temporal.", []string{labelOperation}},
		{"temporal_request_failure", "Calls to Temporal that failed.", []string{labelOperation, labelStatusCode}},
		{"temporal_request_resource_exhausted", "Calls that Temporal refused because of a limit.", []string{labelOperation}},
		{"temporal_long_request", "Long polls of Temporal.", []string{labelOperation}},
		{"temporal_long_request_failure", "Long polls of Temporal that failed.", []string{labelOperation, labelStatusCode}},
		{"temporal_long_request_resource_exhausted", "Long polls that Temporal refused because of a limit.", []string{labelOperation}},
		{"temporal_workflow_task_queue_poll_succeed", "Workflow tasks that polls have brought.", []string{labelTaskQueue}},
		{"temporal_workflow_task_execution_failed", "Workflow tasks that failed, by the SDK's reason.", []string{labelReason}},
		{"temporal_activity_execution_failed", "Attempts at activities that failed.", []string{labelActivityType}},
		{"temporal_activity_task_error", "Activity tasks that ended with an error inside the worker.", []string{labelActivityType}},
		{"temporal_sticky_cache_hit", "Workflow tasks whose run was in the worker's cache.", nil},
		{"temporal_sticky_cache_miss", "Workflow tasks whose run was not in the worker's cache.", nil},
	}
}

func sdkTimers() []sdkMetric {
	return []sdkMetric{
		{"temporal_request_latency", "Time of a call to Temporal.", []string{labelOperation}},
		{"temporal_workflow_task_schedule_to_start_latency", "Time that a workflow task waited in its queue.", []string{labelTaskQueue}},
		{"temporal_workflow_task_execution_latency", "Time that a worker took for a workflow task.", nil},
		{"temporal_workflow_task_replay_latency", "Time that a worker took to replay a run.", nil},
		{"temporal_activity_schedule_to_start_latency", "Time that an activity waited in its queue.", []string{labelTaskQueue}},
		{"temporal_activity_execution_latency", "Time of an attempt at an activity.", []string{labelActivityType}},
	}
}

func sdkGauges() []sdkMetric {
	return []sdkMetric{
		{"temporal_num_pollers", "Polls of task queues that are open.", []string{labelTaskQueue, labelPollerType}},
		{"temporal_worker_task_slots_available", "Tasks that the worker could take on beside those that it has.", []string{labelTaskQueue, labelWorkerType}},
		{"temporal_worker_task_slots_used", "Tasks that the worker has.", []string{labelTaskQueue, labelWorkerType}},
		{"temporal_sticky_cache_size", "Runs in the worker's cache.", nil},
	}
}

// NewMetricsHandler registers those of the SDK's metrics that are worth their series,
// each with a fixed set of labels, and returns what the SDK writes them to. It drops
// the others. A name that is registered already is an error.
func NewMetricsHandler(registerer prometheus.Registerer) (client.MetricsHandler, error) {
	known := &sdkMetrics{labels: map[string][]string{}, counters: map[string]*prometheus.CounterVec{}, timers: map[string]*prometheus.HistogramVec{}, gauges: map[string]*prometheus.GaugeVec{}}
	var collectors []prometheus.Collector
	for _, m := range sdkCounters() {
		made := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name + "_total", Help: m.help}, m.labels)
		known.counters[m.name], known.labels[m.name] = made, m.labels
		collectors = append(collectors, made)
	}
	for _, m := range sdkTimers() {
		made := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: m.name + "_seconds", Help: m.help, Buckets: prometheus.ExponentialBuckets(1.0/1024, 4, 9), // 1 ms to 64 s
		}, m.labels)
		known.timers[m.name], known.labels[m.name] = made, m.labels
		collectors = append(collectors, made)
	}
	for _, m := range sdkGauges() {
		made := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.name, Help: m.help}, m.labels)
		known.gauges[m.name], known.labels[m.name] = made, m.labels
		collectors = append(collectors, made)
	}
	for _, collector := range collectors {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register the metrics of Temporal's SDK: %w", err)
		}
	}
	return &metricsHandler{known: known}, nil
}

// sdkMetrics are keyed by the SDK's names, and do not change.
type sdkMetrics struct {
	labels   map[string][]string
	counters map[string]*prometheus.CounterVec
	timers   map[string]*prometheus.HistogramVec
	gauges   map[string]*prometheus.GaugeVec
}

type metricsHandler struct {
	known *sdkMetrics
	tags  map[string]string
}

// WithTags implements client.MetricsHandler.
func (h *metricsHandler) WithTags(tags map[string]string) client.MetricsHandler {
	all := make(map[string]string, len(h.tags)+len(tags))
	for _, some := range []map[string]string{h.tags, tags} {
		for key, value := range some {
			all[key] = value
		}
	}
	return &metricsHandler{known: h.known, tags: all}
}

// values are those of the labels that a metric keeps, in their order.
func (h *metricsHandler) values(name string) []string {
	values := make([]string, 0, len(h.known.labels[name]))
	for _, label := range h.known.labels[name] {
		values = append(values, h.tags[label])
	}
	return values
}

// Counter implements client.MetricsHandler.
func (h *metricsHandler) Counter(name string) client.MetricsCounter {
	known, ok := h.known.counters[name]
	if !ok {
		return client.MetricsNopHandler.Counter(name)
	}
	return counter{known.WithLabelValues(h.values(name)...)}
}

// Gauge implements client.MetricsHandler.
func (h *metricsHandler) Gauge(name string) client.MetricsGauge {
	known, ok := h.known.gauges[name]
	if !ok {
		return client.MetricsNopHandler.Gauge(name)
	}
	return gauge{known.WithLabelValues(h.values(name)...)}
}

// Timer implements client.MetricsHandler.
func (h *metricsHandler) Timer(name string) client.MetricsTimer {
	known, ok := h.known.timers[name]
	if !ok {
		return client.MetricsNopHandler.Timer(name)
	}
	return timer{known.WithLabelValues(h.values(name)...)}
}

type counter struct{ prometheus.Counter }

// Inc implements client.MetricsCounter.
func (c counter) Inc(by int64) { c.Add(float64(by)) }

type gauge struct{ prometheus.Gauge }

// Update implements client.MetricsGauge.
func (g gauge) Update(value float64) { g.Set(value) }

type timer struct{ prometheus.Observer }

// Record implements client.MetricsTimer.
func (t timer) Record(duration time.Duration) { t.Observe(duration.Seconds()) }
