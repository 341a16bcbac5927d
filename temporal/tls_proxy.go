package temporal

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
)

const (
	// maxProxied limits the open connections. A client of Temporal opens only a few connections. The limit
	// keeps the handshakes of unknown clients within the memory limit of the container.
	maxProxied = 128

	proxyHandshakeTimeout = 3 * time.Second
	proxyDialTimeout      = 5 * time.Second
	// proxyDialInterval is the time between two attempts to connect to a server that starts.
	proxyDialInterval = 200 * time.Millisecond
)

// TLSProxy accepts TLS connections for a Temporal server without TLS on the same host, such as the embedded
// server of the chart. Clients need a certificate of the CA in CAFile. The files are read again at each
// handshake.
type TLSProxy struct {
	// Address and Server have the form host:port.
	Address, Server string
	// CertFile and KeyFile contain the certificate of the proxy and the key of the certificate. CAFile
	// contains the CA of the certificates of clients. All three files are in PEM format.
	CertFile, KeyFile, CAFile string
	Log                       logr.Logger
}

// Run waits until the server accepts connections, and then listens on Address and forwards connections until
// the context ends. When the server refuses the connection of a client, Run stops listening and waits for the
// server again. Therefore, TCP probes of Address fail while Run waits for the server.
func (p *TLSProxy) Run(ctx context.Context) error {
	if _, err := p.config(nil); err != nil {
		return err
	}
	for p.wait(ctx) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.Address)
		if err != nil {
			return fmt.Errorf("listen for clients of Temporal: %w", err)
		}
		p.Log.Info("forwarding connections to Temporal", "address", listener.Addr().String(), "server", p.Server)
		if err := p.serve(ctx, listener); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until the server accepts a connection. wait returns false if the context ends first.
func (p *TLSProxy) wait(ctx context.Context) bool {
	for {
		conn, err := p.dial(ctx)
		if err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(proxyDialInterval):
		}
	}
}

func (p *TLSProxy) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{Timeout: proxyDialTimeout}).DialContext(ctx, "tcp", p.Server)
}

// serve forwards connections of listener. serve returns nil when the context ends, or when the server refuses
// a connection.
func (p *TLSProxy) serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var connections sync.WaitGroup
	defer connections.Wait()
	defer cancel() // forward returns when the context ends, so Wait returns after any error
	limited := netutil.LimitListener(listener, maxProxied)
	defer func() { _ = limited.Close() }() // the next serve listens on the same address
	context.AfterFunc(ctx, func() { _ = limited.Close() })
	clients := tls.NewListener(limited, &tls.Config{GetConfigForClient: p.config})
	for {
		conn, err := clients.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err != nil:
			return fmt.Errorf("accept clients of Temporal: %w", err)
		}
		connections.Go(func() {
			err := p.forward(ctx, conn.(*tls.Conn))
			if err != nil && ctx.Err() == nil {
				p.Log.Info("a client of Temporal is rejected", "client", conn.RemoteAddr().String(), "error", err.Error())
			}
			if errors.Is(err, syscall.ECONNREFUSED) {
				cancel() // the server is down, so end all connections and wait for the server
			}
		})
	}
}

// forward copies bytes between client and server until one side closes the connection, or the context ends.
func (p *TLSProxy) forward(ctx context.Context, client *tls.Conn) error {
	defer func() { _ = client.Close() }()
	handshake, cancel := context.WithTimeout(ctx, proxyHandshakeTimeout)
	defer cancel()
	if err := client.HandshakeContext(handshake); err != nil {
		return ignoreProbe(err)
	}
	server, err := p.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer func() { _ = server.Close() }()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // gRPC connects again after any error
			ended <- struct{}{}
		}()
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// ignoreProbe returns nil for a client that closes the connection without sending a byte, such as a TCP probe
// of the kubelet.
func ignoreProbe(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// config reads the files, and returns the configuration for a connection. Errors contain no part of the
// files.
func (p *TLSProxy) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", p.CertFile, p.KeyFile, err)
	}
	data, err := os.ReadFile(p.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA of clients: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("CA %s contains no certificate in PEM format", p.CAFile)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, NextProtos: []string{"h2"}}, nil
}
