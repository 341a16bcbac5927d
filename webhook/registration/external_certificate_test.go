package registration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// authority issues certificates with an intermediate CA, in the same way as cert-manager with a corporate
// CA.
type authority struct {
	t                  *testing.T
	root, intermediate *x509.Certificate
	key                *ecdsa.PrivateKey
	now                time.Time
}

func newAuthority(t *testing.T, now time.Time) *authority {
	a := &authority{t: t, now: now}
	var rootKey *ecdsa.PrivateKey
	a.root, rootKey = a.sign(&x509.Certificate{IsCA: true}, nil, nil)
	a.intermediate, a.key = a.sign(&x509.Certificate{IsCA: true}, a.root, rootKey)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	if parent == nil {
		parent, by = template, key
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.SerialNumber, template.Subject = serial, pkix.Name{CommonName: serial.String()}
	template.NotBefore, template.BasicConstraintsValid = a.now.Add(-time.Minute), true
	if template.NotAfter.IsZero() {
		template.NotAfter = a.now.Add(10 * 365 * 24 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	require.NoError(a.t, err)
	signed, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return signed, key
}

func encoded(certificates ...*x509.Certificate) (all []byte) {
	for _, certificate := range certificates {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})...)
	}
	return all
}

// issue returns the data of a Secret with a certificate that is valid for one day.
func (a *authority) issue(host string) map[string][]byte {
	a.t.Helper()
	leaf, key := a.sign(&x509.Certificate{DNSNames: []string{host}, NotAfter: a.now.Add(24 * time.Hour)}, a.intermediate, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return map[string][]byte{
		corev1.TLSCertKey: encoded(leaf, a.intermediate), caKey: encoded(a.root),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
}

// external returns a replica whose Secret another controller writes.
func (r *fixture) external() *Reconciler {
	replica := r.replica("")
	replica.external = true
	return replica
}

// write stores data in the Secret, in the same way as another controller.
func (r *fixture) write(data map[string][]byte) {
	r.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: certificateSecret}, Type: corev1.SecretTypeTLS, Data: data}
	if r.store.Update(r.t.Context(), secret.DeepCopy()) != nil {
		require.NoError(r.t, r.store.Create(r.t.Context(), secret))
	}
}

func TestAnExternalCertificateIsNeverWritten(t *testing.T) {
	r := installedFixture(t)
	replica := r.external()
	corporate := newAuthority(t, r.now)
	rejected := func(want string) {
		t.Helper()
		_, err := replica.Reconcile(t.Context(), reconcile.Request{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "--external-certificate")
		require.Nil(t, replica.serving.Load())
	}
	rejected("Secret system/outrigger-webhook-cert")
	withoutCA := corporate.issue("hook.system.svc")
	delete(withoutCA, caKey)
	r.write(withoutCA)
	rejected("entry ca.crt contains no CA")
	r.write(corporate.issue("other.system.svc"))
	rejected("other.system.svc")

	issued := corporate.issue("hook.system.svc")
	r.write(issued)
	r.start(replica)
	assert.Equal(t, issued, r.secret().Data, "a certificate of one day is kept")
	assert.Equal(t, encoded(corporate.root), r.mutating().Webhooks[0].ClientConfig.CABundle)
	assert.Equal(t, encoded(corporate.root), r.conversion().ClientConfig.CABundle)
	require.NoError(t, replica.Registered(nil))
}

// The CA does not change, so the new certificate is served immediately.
func TestARenewedExternalCertificateIsServed(t *testing.T) {
	r := installedFixture(t)
	replica := r.external()
	corporate := newAuthority(t, r.now)
	r.write(corporate.issue("hook.system.svc"))
	r.start(replica)
	first := replica.serving.Load().Leaf
	r.write(corporate.issue("hook.system.svc"))
	r.step(replica)
	assert.False(t, first.Equal(replica.serving.Load().Leaf))
}

// withExpiredCA returns a function that adds an expired CA to the first file only.
func withExpiredCA(t *testing.T) func([]byte) []byte {
	old := newAuthority(t, time.Now().Add(-time.Hour))
	expired, _ := old.sign(&x509.Certificate{IsCA: true, NotAfter: time.Now().Add(-time.Minute)}, nil, nil)
	return func(ca []byte) []byte {
		defer func() { expired = nil }()
		if expired == nil {
			return ca
		}
		return append(encode(expired), ca...)
	}
}

// At each step, all replicas serve certificates that the configurations trust. The certificate of an older
// replica remains trusted after a new replica writes the configurations.
func TestSpec4_14_TheChangeToAnotherCAIsSeamless(t *testing.T) {
	external := func(r *fixture) (*Reconciler, *Reconciler) { return r.external(), r.external() }
	own := func(r *fixture) (*Reconciler, *Reconciler) { return r.replica(""), r.external() }
	for name, test := range map[string]struct {
		replicas func(*fixture) (*Reconciler, *Reconciler)
		// file converts ca.crt to the form in which the other controller writes the file.
		file func([]byte) []byte
	}{
		"of the same issuer kind": {external, bytes.Clone},
		"without a final newline": {external, bytes.TrimSpace},
		"with a comment":          {external, func(ca []byte) []byte { return append([]byte("# root\n"), ca...) }},
		"from its own":            {own, bytes.Clone},
		"after a CA expired":      {external, withExpiredCA(t)},
	} {
		t.Run(name, func(t *testing.T) {
			r := installedFixture(t)
			old, started := test.replicas(r)
			issue := func() {
				data := newAuthority(t, r.now).issue("hook.system.svc")
				data[caKey] = test.file(data[caKey])
				r.write(data)
			}
			if old.external {
				issue()
			}
			r.start(old)
			first := old.serving.Load().Leaf
			if !old.external {
				// An old replica would replace a certificate that is valid for only one day. The chart
				// requests a certificate that is valid for one year.
				made, err := newIssuer("hook", "system", "")
				require.NoError(t, err)
				data, err := made.issue(r.now)
				require.NoError(t, err)
				r.write(data)
			} else {
				issue()
			}
			for range 3 {
				r.step(started)
				r.trusted(old)
				r.step(old)
				r.trusted(started)
			}
			assert.False(t, first.Equal(started.serving.Load().Leaf))
			assert.True(t, first.Equal(old.serving.Load().Leaf), "other API servers may not have observed the CA yet")
			r.now = r.now.Add(propagationDelay)
			r.step(old)
			assert.True(t, old.serving.Load().Leaf.Equal(started.serving.Load().Leaf))
		})
	}
}

// The CA of an external certificate, in a ca.crt without a final newline, remains trusted after the change to
// the webhook's own certificate.
func TestSpec4_14_TheChangeToItsOwnCertificateIsSeamless(t *testing.T) {
	r := installedFixture(t)
	old, started := r.external(), r.replica("")
	data := newAuthority(t, r.now).issue("hook.system.svc")
	data[caKey] = bytes.TrimSpace(data[caKey])
	r.write(data)
	r.start(old)
	for range 3 {
		r.step(started)
		r.trusted(old)
	}
	assert.False(t, old.serving.Load().Leaf.Equal(started.serving.Load().Leaf))
}

// One patch of the MutatingWebhookConfiguration, as in docs/admission.md, removes a CA from all
// bundles.
func TestSpec4_14_ARemovedCAIsNotRestored(t *testing.T) {
	r := installedFixture(t)
	replica := r.external()
	r.write(newAuthority(t, r.now).issue("hook.system.svc"))
	r.start(replica)
	r.write(newAuthority(t, r.now).issue("hook.system.svc"))
	r.start(replica)
	live, ca := r.mutating(), r.secret().Data[caKey]
	for i := range live.Webhooks {
		assert.NotEqual(t, ca, live.Webhooks[i].ClientConfig.CABundle, "the earlier CA is trusted")
		live.Webhooks[i].ClientConfig.CABundle = ca
	}
	require.NoError(t, r.store.Update(t.Context(), live))
	r.step(replica)
	r.step(replica)
	read, err := replica.read(t.Context())
	require.NoError(t, err)
	require.Len(t, read.hooks, 5)
	for _, hook := range read.hooks {
		assert.Equal(t, string(ca), string(hook.client.CABundle), hook.path)
	}
	assert.Equal(t, string(ca), string(r.conversion().ClientConfig.CABundle))
}
