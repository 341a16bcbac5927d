package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/cluster"
)

func certificateSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.SystemNamespace, Name: "outrigger-webhook-cert"}}
}

func TestCertificatesRotateWithoutAFailedRequest(t *testing.T) {
	for name, begin := range map[string]func(*scenario){
		"after the Secret was deleted": func(s *scenario) { require.NoError(s.t, stack.kube.Delete(s.ctx, certificateSecret())) },
		"planned before the end": func(s *scenario) {
			secret := certificateSecret()
			require.NoError(s.t, stack.kube.Get(s.ctx, client.ObjectKeyFromObject(secret), secret))
			secret.Data = endingSoon(s.t)
			require.NoError(s.t, stack.kube.Update(s.ctx, secret))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, 0, nil)
			s.awaitInjection(s.name)
			before := served(t)
			hammer := s.hammer(4)
			begin(s)
			s.poll("another certificate to be served", func() (bool, error) { return !before.Equal(served(t)), nil })
			// Later requests use new connections.
			answered := hammer.answered.Load()
			s.poll("more requests to be answered", func() (bool, error) {
				return hammer.answered.Load() > answered+200 || hammer.ctx.Err() != nil, nil
			})
			assert.NoError(t, hammer.stop(), "after %d requests", hammer.answered.Load())
		})
	}
}

// served returns the certificate that the webhook presents to a new client.
func served(t *testing.T) *x509.Certificate {
	t.Helper()
	roles := stack.Roles()
	at := slices.IndexFunc(roles, func(r cluster.Role) bool { return r.Name == cluster.Webhook })
	address, err := url.Parse(roles[at].WebhookURL)
	require.NoError(t, err)
	// Certificates are not verified, because the test changes the issuer.
	connection, err := tls.Dial("tcp", address.Host, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0]
}

// hammer creates pods in a dry run until a pod is not injected.
type hammer struct {
	ctx      context.Context
	cancel   context.CancelFunc
	all      *errgroup.Group
	answered atomic.Int64
}

func (s *scenario) hammer(clients int) *hammer {
	h := &hammer{}
	h.ctx, h.cancel = context.WithCancel(s.ctx)
	h.all, h.ctx = errgroup.WithContext(h.ctx)
	s.t.Cleanup(h.cancel)
	for range clients {
		h.all.Go(func() error {
			for h.ctx.Err() == nil {
				containers, err := tryPod(s.ctx, s.name, s.name)
				if err != nil {
					return err
				}
				if len(containers) != 2 {
					return fmt.Errorf("a pod got %v", containers)
				}
				h.answered.Add(1)
			}
			return nil
		})
	}
	return h
}

// stop ends the requests, and returns the error of the first failed request.
func (h *hammer) stop() error {
	h.cancel()
	return h.all.Wait()
}

// endingSoon returns a Secret with a certificate of a new CA. The certificate expires in a month.
func endingSoon(t *testing.T) map[string][]byte {
	t.Helper()
	begin, end := time.Now().Add(-time.Hour), time.Now().AddDate(0, 1, 0)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ending soon"}, NotBefore: begin, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, NotBefore: begin, NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	require.NoError(t, err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return map[string][]byte{
		"ca.crt": encode("CERTIFICATE", caDER), corev1.TLSCertKey: encode("CERTIFICATE", leafDER), corev1.TLSPrivateKeyKey: encode("PRIVATE KEY", keyDER),
	}
}
