package registration

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
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
	r.serving.Store(&tls.Certificate{Leaf: &x509.Certificate{NotBefore: time.Unix(1000, 0), NotAfter: time.Unix(1234, 0)}})
	expect("1234")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP outrigger_webhook_certificate_start_timestamp_seconds Start of the serving certificate in seconds since 1970, or 0 without a certificate.
# TYPE outrigger_webhook_certificate_start_timestamp_seconds gauge
outrigger_webhook_certificate_start_timestamp_seconds 1000
`), "outrigger_webhook_certificate_start_timestamp_seconds"))
}

// A certificate that is renewed on time must not fire the alert.
func TestTheAlertAboutTheCertificateFiresAfterTheRenewal(t *testing.T) {
	rules, err := os.ReadFile("../../config/monitoring/rules.yaml")
	require.NoError(t, err)
	found := regexp.MustCompile(`< ([0-9.]+) \* \(outrigger_webhook_certificate_expiry_timestamp_seconds`).FindSubmatch(rules)
	require.Len(t, found, 2)
	share, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(t, err)
	made, err := newIssuer("hook", "system", "")
	require.NoError(t, err)
	secret, err := made.issue(time.Now())
	require.NoError(t, err)
	pair, err := keyPair(secret)
	require.NoError(t, err)
	lifetime := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	assert.Less(t, share*lifetime.Hours(), renewBefore.Hours())
}
