package runs

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/outrigger/outrigger/renamed"
)

// Metrics are the metrics about Temporal and the calls to Temporal.
type Metrics struct {
	available     prometheus.Gauge
	starts, calls *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	m := &Metrics{
		available: factory.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_temporal_available",
			Help: "1 while Temporal responds and accepts rollouts, else 0.",
		}),
		starts: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_rollout_starts_total",
			Help: "Generations of SidecarSets whose rollout was started or signalled, by result.",
		}, []string{"result"}),
		calls: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_temporal_calls_total",
			Help: "Calls to Temporal, by operation and result.",
		}, []string{"operation", "result"}),
	}
	registerer.MustRegister(
		renamed.Collector("outrigger_engine_available", "outrigger_temporal_available", m.available),
		renamed.Collector("outrigger_handovers_total", "outrigger_rollout_starts_total", m.starts, "result"),
	)
	for _, result := range []string{"ok", "error"} {
		m.starts.WithLabelValues(result)
	}
	return m
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
