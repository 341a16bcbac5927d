package webhook

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

// admissionMetrics are the webhook's own metrics.
type admissionMetrics struct {
	admissions *prometheus.CounterVec
	duration   prometheus.Histogram
	containers prometheus.Counter
	requests   *prometheus.CounterVec
	inFlight   prometheus.Gauge
	unmatched  prometheus.Counter
	// refused counts refusals that no set is the cause of.
	refused prometheus.Counter
}

// setMetrics are those of one set. They are held with the set, so that a pod
// that is still on its way cannot bring back the series of a deleted one.
type setMetrics struct{ injected, refused prometheus.Counter }

func newAdmissionMetrics(registerer prometheus.Registerer) (*admissionMetrics, error) {
	m := &admissionMetrics{
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
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_webhook_requests_total",
			Help: "Requests to the webhook, by path and HTTP status.",
		}, []string{"path", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_webhook_requests_in_flight",
			Help: "Requests that the webhook reads or decides about.",
		}),
	}
	for _, collector := range []prometheus.Collector{m.admissions, m.duration, m.containers, m.requests, m.inFlight} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	m.unmatched = m.admissions.WithLabelValues(resultUnmatched, "")
	m.refused = m.admissions.WithLabelValues(resultRefused, "")
	return m, nil
}

func (m *admissionMetrics) ofSet(name string) setMetrics {
	return setMetrics{
		injected: m.admissions.WithLabelValues(resultInjected, name),
		refused:  m.admissions.WithLabelValues(resultRefused, name),
	}
}

// registered reports whether the API server asks this webhook.
func registered(asked func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outrigger_webhook_registered",
		Help: "1 while the API server is told to ask about pods and to trust the answers, else 0.",
	}, func() float64 {
		if asked() {
			return 1
		}
		return 0
	})
}

// forget drops the series of a set that is gone.
func (m *admissionMetrics) forget(name string) {
	m.admissions.DeletePartialMatch(prometheus.Labels{setLabel: name})
}

func (m *admissionMetrics) took(since time.Time) { m.duration.Observe(time.Since(since).Seconds()) }
