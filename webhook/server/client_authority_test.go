package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newClientCertificate returns a CA as PEM, and a client certificate of that CA.
func newClientCertificate(t *testing.T) ([]byte, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, NotBefore: begin, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "apiserver"}, NotBefore: begin, NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestClientsWithoutACertificateGet401(t *testing.T) {
	ca, certificate := newClientCertificate(t)
	anotherCA, another := newClientCertificate(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca, 0o600))
	clients, err := newClientAuthority(file)
	require.NoError(t, err)
	s := newServed(t, func(s *Server) { s.clients = clients })
	ask := func(certificates ...tls.Certificate) (int, string, error) {
		config := s.clientTLS()
		config.Certificates = certificates
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		defer client.CloseIdleConnections()
		response, err := client.Post("https://"+s.address+reviewPath, "application/json", strings.NewReader(reviewBody))
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		return response.StatusCode, text.String(), err
	}

	for path, method := range map[string]string{reviewPath: http.MethodPost, "/": http.MethodGet, "/none": http.MethodPost} {
		status, answer := s.do(t, method, path, "text/plain", nil)
		assert.Equal(t, http.StatusUnauthorized, status, path)
		assert.Equal(t, "unauthorized\n", answer, path)
	}
	status, answer, err := ask()
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Equal(t, "unauthorized\n", answer)
	_, _, err = ask(another)
	require.Error(t, err, "a certificate of another CA")
	status, answer, err = ask(certificate)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, answer, answered)

	require.NoError(t, os.WriteFile(file, anotherCA, 0o600))
	status, _, err = ask(another)
	require.NoError(t, err, "the file is read again")
	assert.Equal(t, http.StatusOK, status)
	require.NoError(t, os.WriteFile(file, []byte("rubbish"), 0o600))
	status, _, err = ask(another)
	require.NoError(t, err, "the CA before counts")
	assert.Equal(t, http.StatusOK, status)
}

func TestAnInvalidClientCAFileIsAnErrorAtTheStart(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, file := range []string{empty, empty + "-missing"} {
		_, err := newClientAuthority(file)
		require.ErrorContains(t, err, "--client-ca-file")
	}
}
