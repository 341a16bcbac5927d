package server

import (
	"cmp"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_webhook_requests_total",
			Help: "Requests to the webhook, by path and HTTP status.",
		}, []string{"path", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_webhook_requests_in_flight",
			Help: "Requests that the webhook reads or decides about.",
		}),
	}
	if err := cmp.Or(registerer.Register(m.requests), registerer.Register(m.inFlight)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}
