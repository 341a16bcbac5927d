package operator

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/operator/policies"
	"github.com/outrigger/outrigger/operator/runs"
)

// metrics are the metrics that the operator adds to the metrics of controller-runtime.
type metrics struct {
	runs           *runs.Metrics
	statusWrites   prometheus.Counter
	withoutSidecar *prometheus.GaugeVec
	rollouts       *rolloutMetrics
	evictions      *policies.Metrics
}

// RegisterMetrics registers the metrics of the operator. A test uses RegisterMetrics to check that the metrics
// are documented.
func RegisterMetrics(registerer prometheus.Registerer) { newMetrics(registerer) }

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{
		runs: runs.NewMetrics(registerer),
		statusWrites: factory.NewCounter(prometheus.CounterOpts{
			Name: "outrigger_status_writes_total",
			Help: "Writes of the status of SidecarSets.",
		}),
		withoutSidecar: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outrigger_pods_without_sidecar",
			Help: "Pods that match a SidecarSet but were not injected with it.",
		}, []string{"sidecarset"}),
		rollouts:  newRolloutMetrics(clock.RealClock{}),
		evictions: policies.NewMetrics(registerer),
	}
	registerer.MustRegister(m.rollouts)
	return m
}
