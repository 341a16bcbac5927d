package temporal

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.temporal.io/sdk/client"
)

// sdkMetric is a metric of the SDK. Exactly one of counter, timer and gauge is set.
type sdkMetric struct {
	labels  []string
	counter *prometheus.CounterVec
	timer   *prometheus.HistogramVec
	gauge   *prometheus.GaugeVec
}

// sdkMetrics registers the exported metrics, and returns the metrics by their names in the SDK. In Prometheus,
// counters have the suffix _total and timers have the suffix _seconds, as in the dashboards of Temporal. All
// other tags of the SDK are dropped, because the values of these tags are constant in a process, or unlimited
// in number.
func sdkMetrics(registerer prometheus.Registerer) map[string]sdkMetric {
	factory, all := promauto.With(registerer), map[string]sdkMetric{}
	counter := func(name, help string, labels ...string) {
		all[name] = sdkMetric{labels: labels, counter: factory.NewCounterVec(prometheus.CounterOpts{Name: name + "_total", Help: help}, labels)}
	}
	timer := func(name, help string, labels ...string) {
		buckets := prometheus.ExponentialBuckets(1.0/1024, 4, 9) // 1 ms to 64 s
		all[name] = sdkMetric{labels: labels, timer: factory.NewHistogramVec(prometheus.HistogramOpts{Name: name + "_seconds", Help: help, Buckets: buckets}, labels)}
	}
	gauge := func(name, help string, labels ...string) {
		all[name] = sdkMetric{labels: labels, gauge: factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)}
	}
	counter("temporal_request", "Calls to Temporal.", "operation")
	counter("temporal_request_failure", "Calls to Temporal that failed.", "operation", "status_code")
	counter("temporal_request_resource_exhausted", "Calls that Temporal rejected because of a limit.", "operation")
	counter("temporal_long_request", "Long polls of Temporal.", "operation")
	counter("temporal_long_request_failure", "Long polls of Temporal that failed.", "operation", "status_code")
	counter("temporal_long_request_resource_exhausted", "Long polls that Temporal rejected because of a limit.", "operation")
	counter("temporal_workflow_task_queue_poll_succeed", "Polls that returned a workflow task.", "task_queue")
	counter("temporal_workflow_task_execution_failed", "Workflow tasks that failed, by the SDK's reason.", "failure_reason")
	counter("temporal_activity_execution_failed", "Attempts of activities that failed.", "activity_type")
	counter("temporal_activity_task_error", "Activity tasks that ended with an error inside the worker.", "activity_type")
	counter("temporal_sticky_cache_hit", "Workflow tasks whose run was in the worker's cache.")
	counter("temporal_sticky_cache_miss", "Workflow tasks whose run was not in the worker's cache.")
	timer("temporal_request_latency", "Duration of a call to Temporal.", "operation")
	timer("temporal_workflow_task_schedule_to_start_latency", "Time of a workflow task in its queue.", "task_queue")
	timer("temporal_workflow_task_execution_latency", "Duration of a workflow task.")
	timer("temporal_workflow_task_replay_latency", "Duration of the replay of a run.")
	timer("temporal_activity_schedule_to_start_latency", "Time of an activity in its queue.", "task_queue")
	timer("temporal_activity_execution_latency", "Duration of an attempt of an activity.", "activity_type")
	gauge("temporal_num_pollers", "Open polls of task queues.", "task_queue", "poller_type")
	gauge("temporal_worker_task_slots_available", "Additional tasks that the worker can accept.", "task_queue", "worker_type")
	gauge("temporal_worker_task_slots_used", "Tasks that the worker executes.", "task_queue", "worker_type")
	gauge("temporal_sticky_cache_size", "Runs in the worker's cache.")
	return all
}

// NewMetricsHandler registers the metrics of the SDK, each with fixed labels. NewMetricsHandler returns the
// handler that updates these metrics. The handler drops metrics that are not in sdkMetrics.
func NewMetricsHandler(registerer prometheus.Registerer) client.MetricsHandler {
	return &metricsHandler{metrics: sdkMetrics(registerer)}
}

type metricsHandler struct {
	metrics map[string]sdkMetric
	tags    map[string]string
}

// WithTags implements client.MetricsHandler.
func (h *metricsHandler) WithTags(tags map[string]string) client.MetricsHandler {
	all := make(map[string]string, len(h.tags)+len(tags))
	maps.Copy(all, h.tags)
	maps.Copy(all, tags)
	return &metricsHandler{metrics: h.metrics, tags: all}
}

// values returns the values of the labels, in the order of labels. A missing tag has an empty value.
func (h *metricsHandler) values(labels []string) []string {
	values := make([]string, len(labels))
	for i, label := range labels {
		values[i] = h.tags[label]
	}
	return values
}

// Counter implements client.MetricsHandler.
func (h *metricsHandler) Counter(name string) client.MetricsCounter {
	if m := h.metrics[name]; m.counter != nil {
		return counter{m.counter.WithLabelValues(h.values(m.labels)...)}
	}
	return client.MetricsNopHandler.Counter(name)
}

// Gauge implements client.MetricsHandler.
func (h *metricsHandler) Gauge(name string) client.MetricsGauge {
	if m := h.metrics[name]; m.gauge != nil {
		return gauge{m.gauge.WithLabelValues(h.values(m.labels)...)}
	}
	return client.MetricsNopHandler.Gauge(name)
}

// Timer implements client.MetricsHandler.
func (h *metricsHandler) Timer(name string) client.MetricsTimer {
	if m := h.metrics[name]; m.timer != nil {
		return timer{m.timer.WithLabelValues(h.values(m.labels)...)}
	}
	return client.MetricsNopHandler.Timer(name)
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
