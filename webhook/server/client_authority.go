package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// clientAuthority authenticates API servers by their client certificates. A nil
// clientAuthority accepts every client.
type clientAuthority struct {
	file string
	// last is the last valid content of the file.
	last atomic.Pointer[x509.CertPool]
}

// newClientAuthority returns nil if file is empty.
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

// requestCertificate returns a tls.Config.GetConfigForClient that requests a client certificate on each
// connection. The function reads the CA file for each connection, so that a new CA needs no restart. While
// the file is invalid, the function uses the last valid content.
func (a *clientAuthority) requestCertificate(config *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		_ = a.read()
		own := config.Clone()
		own.ClientAuth, own.ClientCAs = tls.VerifyClientCertIfGiven, a.last.Load()
		return own, nil
	}
}

// accepts reports whether a connection is accepted. Without a client CA, every connection is
// accepted. Otherwise, the client must have sent a certificate. The TLS handshake has already
// rejected certificates of another CA, and certificates that do not allow client authentication.
func (a *clientAuthority) accepts(state *tls.ConnectionState) bool {
	return a == nil || state != nil && len(state.VerifiedChains) > 0
}
