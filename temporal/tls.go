package temporal

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
)

// unusable begins the errors about files and PEM data; Explain looks for it.
const unusable = "unusable file: "

// alertTimeout bounds the wait for an alert on a connection that is broken anyway.
const alertTimeout = time.Second

// TLS has its files read anew at each handshake, so that replaced ones are used by the
// next connection. Open connections stay.
type TLS struct {
	// ServerName is verified instead of the host of the address.
	ServerName string
	// DisableHostVerification accepts any certificate of the server.
	DisableHostVerification bool

	// certificate and key are both given or both absent; without ca the system's are used.
	certificate, key, ca pemSource
}

// pemSource is a file or what one would hold; zero for none.
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

// config reads the files. Its errors quote nothing of them.
func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.DisableHostVerification}
	if t.ca.given() {
		data, err := t.ca.read()
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf(unusable+"CA %s holds no certificate in PEM form", t.ca)
		}
	}
	if t.certificate.given() {
		certificate, err := t.clientCertificate()
		if err != nil {
			return nil, err
		}
		// Offered even to a server that names other CAs: its refusal then says what is
		// wrong, instead of that there is none.
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

// transportCredentials are gRPC's, made anew for each handshake.
type transportCredentials struct {
	// TransportCredentials tell gRPC the protocol and the server name.
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
	return alertConn{secure}, info, nil
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *transportCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

// Clone implements credentials.TransportCredentials.
func (c *transportCredentials) Clone() credentials.TransportCredentials {
	return newTransportCredentials(c.tls)
}

// alertConn has a failed write return the server's TLS alert. From TLS 1.3 on the server
// checks the client certificate after the client has done its part, and gRPC may write
// before it reads.
type alertConn struct{ net.Conn }

// Write implements net.Conn.
func (c alertConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if err == nil {
		return n, nil
	}
	// Nothing else is left to read, and the reader ends with the same error.
	_ = c.SetReadDeadline(time.Now().Add(alertTimeout))
	var alert *net.OpError
	if _, reason := c.Read(make([]byte, 1)); errors.As(reason, &alert) && alert.Op == "remote error" {
		err = reason
	}
	return n, err
}
