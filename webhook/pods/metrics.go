package pods

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of an admission, for each set that matches the pod.
const (
	resultInjected = "injected"
	resultRefused  = "refused"
	// resultUnmatched is that of a pod that gets nothing; it names no set.
	resultUnmatched = "unmatched"
)

const setLabel = "sidecarset"

type metrics struct {
	admissions *prometheus.CounterVec
	duration   prometheus.Histogram
	containers prometheus.Counter
	unmatched  prometheus.Counter
	// refused counts refusals that no set is the cause of.
	refused prometheus.Counter
}

// setMetrics are those of one set. They are held with the set, so that a pod
// that is still on its way cannot bring back the series of a deleted one.
type setMetrics struct{ injected, refused prometheus.Counter }

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		admissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_admissions_total",
			Help: "Admissions of pods, by result and by the SidecarSet that was injected or refused the pod.",
		}, []string{"result", setLabel}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "outrigger_admission_duration_seconds",
			Help:    "Time to decide about a pod, from its request to the answer, without the network.",
			Buckets: prometheus.ExponentialBuckets(25e-6, 2, 18), // 25 µs to 3.3 s
		}),
		containers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outrigger_injected_containers_total",
			Help: "Containers and init containers injected into pods.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.admissions, m.duration, m.containers} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	m.unmatched = m.admissions.WithLabelValues(resultUnmatched, "")
	m.refused = m.admissions.WithLabelValues(resultRefused, "")
	return m, nil
}

func (m *metrics) ofSet(name string) setMetrics {
	return setMetrics{
		injected: m.admissions.WithLabelValues(resultInjected, name),
		refused:  m.admissions.WithLabelValues(resultRefused, name),
	}
}

// forget drops the series of a set that is gone.
func (m *metrics) forget(name string) {
	m.admissions.DeletePartialMatch(prometheus.Labels{setLabel: name})
}

func (m *metrics) took(since time.Time) { m.duration.Observe(time.Since(since).Seconds()) }
