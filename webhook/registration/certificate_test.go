package registration

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A certificate must be valid even if the clock of the issuing replica is wrong.
func TestACertificateIsValidAtOnceWithAnyClockOfTheIssuer(t *testing.T) {
	made, err := newIssuer("hook", "system", "")
	require.NoError(t, err)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{-48 * time.Hour, -time.Hour, 0, time.Hour, 48 * time.Hour} {
		data, err := made.issue(now.Add(ahead))
		require.NoError(t, err)
		pair, err := keyPair(data)
		require.NoError(t, err)
		roots := x509.NewCertPool()
		require.True(t, roots.AppendCertsFromPEM(data[caKey]))
		// The clocks of API servers may also be wrong.
		for _, server := range []time.Duration{-time.Hour, 0, time.Hour} {
			_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: "hook.system.svc", Roots: roots, CurrentTime: now.Add(server)})
			assert.NoError(t, err, "issued %s ahead, checked %s ahead", ahead, server)
		}
	}
}

func TestACertificateThatIsNotValidYetIsReplaced(t *testing.T) {
	made, err := newIssuer("hook", "system", "")
	require.NoError(t, err)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	data, err := made.issue(now.Add(backdated + time.Hour))
	require.NoError(t, err)
	require.Error(t, made.verify(data, now))
	require.NoError(t, made.verify(data, now.Add(2*time.Hour)))
}
