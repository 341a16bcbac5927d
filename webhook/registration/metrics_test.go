package registration

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestTheEndOfTheServedCertificateIsAMetric(t *testing.T) {
	const name = "outrigger_webhook_certificate_expiry_timestamp_seconds"
	r, registry := &Reconciler{}, prometheus.NewRegistry()
	r.registerMetrics(registry)
	expect := func(value string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(
			"# HELP "+name+" End of the serving certificate in seconds since 1970, or 0 without a certificate.\n# TYPE "+name+" gauge\n"+name+" "+value+"\n"), name))
	}
	expect("0")
	r.serving.Store(&tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Unix(1234, 0)}})
	expect("1234")
}
