package registration

import "github.com/prometheus/client_golang/prometheus"

// Collector is a gauge: 1 while the API server calls the pod webhook, else 0.
func (r *Reconciler) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outrigger_webhook_registered",
		Help: "1 while the API server is told to ask about pods and to trust the answers, else 0.",
	}, func() float64 {
		if r.registered.Load() {
			return 1
		}
		return 0
	})
}
