package operator

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/operator/runs"
)

// metrics are those that the operator adds to controller-runtime's.
type metrics struct {
	runs           *runs.Metrics
	statusWrites   prometheus.Counter
	withoutSidecar *prometheus.GaugeVec
	rollouts       *rolloutMetrics
}

// RegisterMetrics registers the operator's metrics without an operator, for their
// documentation.
func RegisterMetrics(registerer prometheus.Registerer) error {
	_, err := newMetrics(registerer)
	return err
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		runs: runs.NewMetrics(),
		statusWrites: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outrigger_status_writes_total",
			Help: "Writes of a SidecarSet's status.",
		}),
		withoutSidecar: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_pods_without_sidecar",
			Help: "Pods that match a SidecarSet but were not injected with it.",
		}, []string{"sidecarset"}),
		rollouts: newRolloutMetrics(clock.RealClock{}),
	}
	for _, collector := range append(m.runs.Collectors(), m.statusWrites, m.withoutSidecar, m.rollouts) {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
