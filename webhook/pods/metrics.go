package pods

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// These are the results of an admission.
const (
	resultInjected = "injected"
	resultRejected = "refused"
	// resultUnmatched means that no SidecarSet injects the pod.
	resultUnmatched = "unmatched"
)

const setLabel = "sidecarset"

type metrics struct {
	admissions *prometheus.CounterVec
	duration   prometheus.Histogram
	containers prometheus.Counter
	unmatched  prometheus.Counter
	// rejected counts rejections that no SidecarSet caused.
	rejected prometheus.Counter
}

// setMetrics are the counters of one SidecarSet. compiledSet contains the counters, so that a
// request in progress cannot recreate the series of a deleted SidecarSet.
type setMetrics struct{ injected, rejected prometheus.Counter }

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{
		admissions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_admissions_total",
			Help: "Admissions of pods, by result and by the SidecarSet that was injected or caused the rejection.",
		}, []string{"result", setLabel}),
		duration: factory.NewHistogram(prometheus.HistogramOpts{
			Name:    "outrigger_admission_duration_seconds",
			Help:    "Time from the request for a new pod to the answer, without the network.",
			Buckets: prometheus.ExponentialBuckets(25e-6, 2, 18), // 25 µs to 3.3 s
		}),
		containers: factory.NewCounter(prometheus.CounterOpts{
			Name: "outrigger_injected_containers_total",
			Help: "Containers and init containers injected into pods.",
		}),
	}
	m.unmatched = m.admissions.WithLabelValues(resultUnmatched, "")
	m.rejected = m.admissions.WithLabelValues(resultRejected, "")
	return m
}

func (m *metrics) ofSet(name string) setMetrics {
	return setMetrics{
		injected: m.admissions.WithLabelValues(resultInjected, name),
		rejected: m.admissions.WithLabelValues(resultRejected, name),
	}
}

// forget deletes the series of a deleted SidecarSet.
func (m *metrics) forget(name string) {
	m.admissions.DeletePartialMatch(prometheus.Labels{setLabel: name})
}
