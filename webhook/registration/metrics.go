package registration

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

func (r *Reconciler) registerMetrics(registerer prometheus.Registerer) {
	factory := promauto.With(registerer)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outrigger_webhook_registered",
		Help: "1 while the API server calls the pod webhook and trusts its certificate, else 0.",
	}, func() float64 {
		if r.registered.Load() {
			return 1
		}
		return 0
	})
	ofCertificate := func(name, help string, of func(*x509.Certificate) time.Time) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if serving := r.serving.Load(); serving != nil {
				return float64(of(serving.Leaf).Unix())
			}
			return 0
		})
	}
	ofCertificate("outrigger_webhook_certificate_start_timestamp_seconds", "Start of the serving certificate in seconds since 1970, or 0 without a certificate.",
		func(c *x509.Certificate) time.Time { return c.NotBefore })
	ofCertificate("outrigger_webhook_certificate_expiry_timestamp_seconds", "End of the serving certificate in seconds since 1970, or 0 without a certificate.",
		func(c *x509.Certificate) time.Time { return c.NotAfter })
}
