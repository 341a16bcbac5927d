package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// shutdownTimeout limits the time of requests in flight when the process ends.
	shutdownTimeout = 15 * time.Second
	// maxHeaderBytes limits the header of a request.
	maxHeaderBytes = 32 << 10
)

// timeouts limit the time of a client. API servers need much less time.
type timeouts struct {
	handshake, request, answer, idle time.Duration
}

func defaultTimeouts() timeouts {
	return timeouts{
		// handshake limits the time of the TLS handshake, and the time of each header.
		handshake: 5 * time.Second,
		// request limits the time of header and body together.
		request: 15 * time.Second,
		// answer limits the time of the responder, and the time to send the answer of the responder.
		answer: 20 * time.Second,
		// API servers close idle connections after 90 s. The server must not close an idle
		// connection first. Otherwise, a request could arrive on a connection that is being
		// closed.
		idle: 2 * time.Minute,
	}
}

// Runnable returns a runnable that serves on the listener plain until the context of the runnable ends, and
// then completes the requests in flight. The manager starts the Runnable before the caches, and stops the
// Runnable after the caches.
func (s *Server) Runnable(plain net.Listener) *manager.Server {
	s.mux.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		if s.clients.accepts(request.TLS) {
			reject(w, request, http.StatusNotFound, errNotFound)
		} else {
			reject(w, request, http.StatusUnauthorized, errUnauthorized)
		}
	})
	return &manager.Server{
		Name:            "admission",
		Listener:        tls.NewListener(netutil.LimitListener(plain, maxConnections), s.tls()),
		ShutdownTimeout: new(shutdownTimeout),
		Server: &http.Server{
			Handler:           &s.mux,
			ReadHeaderTimeout: s.timeouts.handshake,
			ReadTimeout:       s.timeouts.request,
			WriteTimeout:      s.timeouts.request + 2*s.timeouts.answer,
			IdleTimeout:       s.timeouts.idle,
			MaxHeaderBytes:    maxHeaderBytes,
			// Failed handshakes are logged at debug level, because port scanners cause many
			// failures.
			ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelDebug),
		},
	}
}

// tls offers only HTTP/1.1, which API servers use for webhooks. With HTTP/1.1, an API server opens one
// connection for each request in flight, so the load is spread over the replicas.
func (s *Server) tls() *tls.Config {
	config := &tls.Config{GetCertificate: s.certificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.clients != nil {
		config.GetConfigForClient = s.clients.requestCertificate(config.Clone())
	}
	return config
}

// Listen opens the port of the server. Run calls Listen before the start of the manager, so that a port in use
// is an immediate error.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serve admission: %w (choose another --port)", err)
	}
	return listener, nil
}

// timedOut reports whether a client exceeded a timeout.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
