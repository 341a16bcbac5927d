package temporal

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority is a certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T, name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// sign returns a certificate for name, and the key of the certificate, in PEM format.
func (a *authority) sign(t *testing.T, name string, valid time.Duration) (certificate, private []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid),
	}, a.certificate, &key.PublicKey, a.key)
	require.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// serverConfig returns the configuration of a server. Unless clients is nil, the server requires client
// certificates that the authority in clients has signed.
func (a *authority) serverConfig(t *testing.T, name string, valid time.Duration, clients *authority) *tls.Config {
	pair, err := tls.X509KeyPair(a.sign(t, name, valid))
	require.NoError(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool()
	}
	return config
}

// identityFiles are the files of a client.
type identityFiles struct{ ca, cert, key string }

func newIdentityFiles(t *testing.T) identityFiles {
	dir := t.TempDir()
	return identityFiles{filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

// write replaces the files. The CA file contains the certificate of the authority in server. The authority in
// client signs the certificate for name.
func (f identityFiles) write(t *testing.T, server, client *authority, name string) {
	cert, key := client.sign(t, name, time.Hour)
	for path, data := range map[string][]byte{f.ca: server.pem, f.cert: cert, f.key: key} {
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
}

func (f identityFiles) flags(address string) *Flags {
	return &Flags{Address: address, CAPath: f.ca, CertPath: f.cert, KeyPath: f.key, ServerName: serverName}
}

const serverName = "temporal.example"
