package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	return &metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "outrigger_webhook_requests_total",
			Help: "Requests to the webhook, by path and HTTP status.",
		}, []string{"path", "code"}),
		inFlight: factory.NewGauge(prometheus.GaugeOpts{
			Name: "outrigger_webhook_requests_in_flight",
			Help: "Requests that the webhook is reading or answering.",
		}),
	}
}
