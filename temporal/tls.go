package temporal

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// unusable is the prefix of errors about files and PEM data. Explain searches for this prefix.
const unusable = "unusable file: "

// alertTimeout limits the wait for an alert on a broken connection.
const alertTimeout = time.Second

// TLS contains the options of TLS connections. The files are read again at each handshake, so that new
// connections use replaced files. Open connections stay open.
type TLS struct {
	// ServerName replaces the host of the address in the verification of the certificate.
	ServerName string
	// DisableHostVerification accepts any certificate of the server.
	DisableHostVerification bool

	// certificate is set if and only if key is set. Without ca, the CAs of the system are used.
	certificate, key, ca pemSource
}

// pemSource is a file or PEM data. The zero value is empty.
type pemSource struct {
	path string
	data []byte
}

func (s pemSource) given() bool { return s.path != "" || len(s.data) > 0 }

func (s pemSource) String() string {
	if s.path == "" {
		return "(given as data)"
	}
	return s.path
}

func (s pemSource) read() ([]byte, error) {
	if s.path == "" {
		return s.data, nil
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		return nil, fmt.Errorf(unusable+"%w", err)
	}
	return data, nil
}

// config reads the files, and returns the configuration for a handshake. Errors contain no part of the files.
func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.DisableHostVerification}
	if t.ca.given() {
		data, err := t.ca.read()
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf(unusable+"CA %s contains no certificate in PEM format", t.ca)
		}
	}
	if t.certificate.given() {
		certificate, err := t.clientCertificate()
		if err != nil {
			return nil, err
		}
		// The client sends the certificate even if the server requests certificates of other CAs. The alert of
		// the server then describes the problem of the certificate. Without a certificate, the alert would only
		// state that a certificate is missing.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return config, nil
}

func (t *TLS) clientCertificate() (*tls.Certificate, error) {
	certificate, err := t.certificate.read()
	if err != nil {
		return nil, err
	}
	key, err := t.key.read()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf(unusable+"certificate %s with key %s: %w", t.certificate, t.key, err)
	}
	return &pair, nil
}

// transportCredentials creates new gRPC credentials for each handshake.
type transportCredentials struct {
	// TransportCredentials provides the protocol and the server name to gRPC.
	credentials.TransportCredentials
	tls *TLS
}

func newTransportCredentials(t *TLS) credentials.TransportCredentials {
	return &transportCredentials{credentials.NewTLS(&tls.Config{ServerName: t.ServerName}), t}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *transportCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.tls.config()
	if err != nil {
		return nil, nil, err
	}
	secure, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	return &alertConn{Conn: secure}, info, nil
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *transportCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for clients only")
}

// Clone implements credentials.TransportCredentials.
func (c *transportCredentials) Clone() credentials.TransportCredentials {
	return newTransportCredentials(c.tls)
}

// alertConn is a connection whose Write returns the TLS alert of the server instead of the write error, if
// the server has sent an alert. In TLS 1.3, the server verifies the client certificate after the client has
// completed the handshake. Therefore, gRPC may write to the connection before gRPC reads the alert.
type alertConn struct {
	net.Conn
	// read is set once the server has sent data. Afterwards, Write must not consume data that gRPC reads.
	read atomic.Bool
}

// Read implements net.Conn.
func (c *alertConn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	if n > 0 {
		c.read.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (c *alertConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if err == nil || c.read.Load() {
		return n, err
	}
	// The server has sent no data, so this Read does not consume data that gRPC needs. After an alert, later
	// reads by gRPC return the same error.
	_ = c.SetReadDeadline(time.Now().Add(alertTimeout))
	var alert *net.OpError
	if _, reason := c.Read(make([]byte, 1)); errors.As(reason, &alert) && alert.Op == "remote error" {
		err = reason
	}
	return n, err
}
