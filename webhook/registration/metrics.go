package registration

import "github.com/prometheus/client_golang/prometheus"

// collector is a gauge of each: whether the API server calls the pod webhook, and when
// the served certificate ends.
type collector struct{ registered, expiry prometheus.GaugeFunc }

// Collector has the metrics of the registration.
func (r *Reconciler) Collector() prometheus.Collector {
	return collector{
		registered: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outrigger_webhook_registered",
			Help: "1 while the API server is told to ask about pods and to trust the answers, else 0.",
		}, func() float64 {
			if r.registered.Load() {
				return 1
			}
			return 0
		}),
		expiry: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outrigger_webhook_certificate_expiry_timestamp_seconds",
			Help: "End of the certificate that is served, in seconds since 1970; 0 while none is.",
		}, func() float64 {
			if serving := r.serving.Load(); serving != nil {
				return float64(serving.Leaf.NotAfter.Unix())
			}
			return 0
		}),
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	c.registered.Describe(descriptions)
	c.expiry.Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	c.registered.Collect(metrics)
	c.expiry.Collect(metrics)
}
