package activities

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/renamed"
)

// The constants are the values of the metric label change, which names the change that a batch makes to a pod.
const (
	changeUpgrade   = "upgrade"
	changeReset     = "reset"
	changeCondition = "condition"
)

// Metrics are the metrics of the batches of a worker.
type Metrics struct {
	pods    *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	// limitUnavailable and limitSize have values only in the worker that leads.
	limitUnavailable, limitSize *prometheus.GaugeVec
}

// NewMetrics creates the metrics, and registers the metrics with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	m := &Metrics{
		pods: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_batch_pods_total",
			Help: "Pods of batches, by change (upgrade, reset, condition) and result (written, refused: rejected by the API server, skipped).",
		}, []string{"change", "result"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outrigger_batch_duration_seconds",
			Help:    "Duration of a batch in seconds, by change (upgrade, reset, condition).",
			Buckets: prometheus.ExponentialBuckets(1.0/64, 2, 14), // 16 ms to 128 s, because a reset may take 60 s
		}, []string{"change"}),
		limitUnavailable: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_cluster_unavailable_pods",
			Help: "Pods of the cluster that are unavailable because of upgrades, and slots of running batches; only from the worker that leads, with --max-unavailable-pods.",
		}, nil),
		limitSize: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_cluster_max_unavailable_pods",
			Help: "Cluster-wide limit of the pods that upgrades make unavailable: --max-unavailable-pods of the worker that leads.",
		}, nil),
	}
	registerer.MustRegister(
		renamed.Collector("outrigger_fleet_unavailable_pods", "outrigger_cluster_unavailable_pods", m.limitUnavailable),
		renamed.Collector("outrigger_fleet_max_unavailable_pods", "outrigger_cluster_max_unavailable_pods", m.limitSize),
	)
	for _, change := range []string{changeUpgrade, changeReset, changeCondition} {
		m.seconds.WithLabelValues(change)
		for _, result := range []podResult{resultWritten, resultRejected, resultSkipped} {
			m.pods.WithLabelValues(change, string(result))
		}
	}
	return m
}

// time starts the measurement of the duration of a batch. The returned function records the duration.
func (m *Metrics) time(change string, clock clock.PassiveClock) (end func()) {
	began := clock.Now()
	return func() { m.seconds.WithLabelValues(change).Observe(clock.Since(began).Seconds()) }
}
