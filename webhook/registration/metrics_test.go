package registration

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestTheEndOfTheServedCertificateIsAMetric(t *testing.T) {
	const name = "outrigger_webhook_certificate_expiry_timestamp_seconds"
	r := &Reconciler{}
	expect := func(value string) {
		t.Helper()
		require.NoError(t, testutil.CollectAndCompare(r.Collector(), strings.NewReader(
			"# HELP "+name+" End of the certificate that is served, in seconds since 1970; 0 while none is.\n# TYPE "+name+" gauge\n"+name+" "+value+"\n"), name))
	}
	expect("0")
	r.serving.Store(&tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Unix(1234, 0)}})
	expect("1234")
}
