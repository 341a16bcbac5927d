package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// clientAuthority knows API servers by their client certificates. A nil
// one takes every client for an API server.
type clientAuthority struct {
	file string
	// last is what the file held when it was last of use.
	last atomic.Pointer[x509.CertPool]
}

// newClientAuthority reads a file of CA certificates; no file, no check.
func newClientAuthority(file string) (*clientAuthority, error) {
	if file == "" {
		return nil, nil
	}
	a := &clientAuthority{file: file}
	return a, a.read()
}

func (a *clientAuthority) read() error {
	found, err := os.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("read the CA of API servers (--client-ca-file): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(found) {
		return fmt.Errorf("read the CA of API servers (--client-ca-file): %s holds no PEM certificate", a.file)
	}
	a.last.Store(pool)
	return nil
}

// requestCertificate asks each new connection for a certificate. The file is read anew,
// so that a new CA needs no restart; while it is of no use, the one before counts.
func (a *clientAuthority) requestCertificate(config *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		_ = a.read()
		own := config.Clone()
		own.ClientAuth, own.ClientCAs = tls.VerifyClientCertIfGiven, a.last.Load()
		return own, nil
	}
}

// knows reports whether a connection's client has shown a certificate: TLS ends
// those whose certificate is of another CA, or not for clients.
func (a *clientAuthority) knows(state *tls.ConnectionState) bool {
	return a == nil || state != nil && len(state.VerifiedChains) > 0
}
