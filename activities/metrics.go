package activities

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Kinds of batches, by what they change in a pod.
const (
	changeUpgrade   = "upgrade"
	changeReset     = "reset"
	changeCondition = "condition"
)

// Metrics are those of a worker's batches.
type Metrics struct {
	pods    *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	// The fleet's are only there in the process that leads.
	fleetUnavailable, fleetLimit *prometheus.GaugeVec
}

// NewMetrics registers the metrics; one that is registered already is an error.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_batch_pods_total",
			Help: "Pods that batches have dealt with, by what was to be changed (upgrade, reset, condition) and whether it was written, refused or skipped.",
		}, []string{"change", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "outrigger_batch_duration_seconds",
			Help:    "Time from the start of a batch to its end, by what was to be changed (upgrade, reset, condition).",
			Buckets: prometheus.ExponentialBuckets(1.0/64, 2, 14), // 16 ms to 128 s; a reset may take 60
		}, []string{"change"}),
		fleetUnavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_fleet_unavailable_pods",
			Help: "Pods of the cluster that are unavailable because of upgrades, those granted to a batch included; only from the worker that leads, with --max-unavailable-pods.",
		}, nil),
		fleetLimit: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_fleet_max_unavailable_pods",
			Help: "Bound on the pods of the cluster that upgrades make unavailable, --max-unavailable-pods of the worker that leads.",
		}, nil),
	}
	for _, change := range []string{changeUpgrade, changeReset, changeCondition} {
		m.seconds.WithLabelValues(change)
		for _, result := range []podResult{resultWritten, resultRefused, resultSkipped} {
			m.pods.WithLabelValues(change, string(result))
		}
	}
	for _, collector := range []prometheus.Collector{m.pods, m.seconds, m.fleetUnavailable, m.fleetLimit} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// time begins a batch; what it returns ends it.
func (m *Metrics) time(change string, clock clock.PassiveClock) (end func()) {
	began := clock.Now()
	return func() { m.seconds.WithLabelValues(change).Observe(clock.Since(began).Seconds()) }
}
