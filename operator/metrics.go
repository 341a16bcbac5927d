package operator

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// metrics are those that the operator adds to controller-runtime's.
type metrics struct {
	temporalAvailable prometheus.Gauge
	rolloutStarts     *prometheus.CounterVec
	statusWrites      prometheus.Counter
	temporalCalls     *prometheus.CounterVec
	withoutSidecar    *prometheus.GaugeVec
	rollouts          *rolloutMetrics
}

// RegisterMetrics registers the operator's metrics without an operator, for what
// documents them.
func RegisterMetrics(registerer prometheus.Registerer) error {
	_, err := newMetrics(registerer)
	return err
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		temporalAvailable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_engine_available",
			Help: "1 while Temporal answers and takes rollouts, else 0.",
		}),
		rolloutStarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_handovers_total",
			Help: "Generations of SidecarSets whose rollout was started or signalled, by result.",
		}, []string{"result"}),
		statusWrites: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outrigger_status_writes_total",
			Help: "Writes of a SidecarSet's status.",
		}),
		temporalCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_temporal_calls_total",
			Help: "Calls to Temporal, by operation and result.",
		}, []string{"operation", "result"}),
		withoutSidecar: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_pods_without_sidecar",
			Help: "Pods that match a SidecarSet but were not injected with it.",
		}, []string{"sidecarset"}),
		rollouts: newRolloutMetrics(clock.RealClock{}),
	}
	for _, result := range []string{resultOK, resultError} {
		m.rolloutStarts.WithLabelValues(result)
	}
	for _, collector := range []prometheus.Collector{m.temporalAvailable, m.rolloutStarts, m.statusWrites, m.temporalCalls, m.withoutSidecar, m.rollouts} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// Results of calls to Temporal.
const (
	resultOK    = "ok"
	resultError = "error"
)

func resultOf(err error) string {
	if err != nil {
		return resultError
	}
	return resultOK
}
