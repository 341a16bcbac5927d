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
	// shutdownTimeout is how long running requests may take once the process ends.
	shutdownTimeout = 15 * time.Second
	// maxHeaderBytes bounds the header of a request, in bytes.
	maxHeaderBytes = 32 << 10
)

// timeouts are how long a client may take. API servers need far less; others get
// nothing for free.
type timeouts struct {
	handshake, request, answer, idle time.Duration
}

func defaultTimeouts() timeouts {
	return timeouts{
		// TLS, and then each header.
		handshake: 5 * time.Second,
		// Header and body together.
		request: 15 * time.Second,
		// To be decided, and then to be sent.
		answer: 20 * time.Second,
		// API servers close idle connections after 90 s. Who closes first must
		// be the client, or a request meets a connection that is being closed.
		idle: 2 * time.Minute,
	}
}

// Runnable serves on a listener until its context ends, and then until running
// requests have their answers. It starts before the caches and ends after them.
func (s *Server) Runnable(plain net.Listener) *manager.Server {
	s.mux.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		if s.clients.knows(request.TLS) {
			refuse(w, request, http.StatusNotFound, errNothingHere)
		} else {
			refuse(w, request, http.StatusUnauthorized, errUnknown)
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
			// Failed handshakes: port scanners make many.
			ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelDebug),
		},
	}
}

// tls speaks HTTP/1.1 alone, as API servers do to webhooks, so that replicas
// share the load.
func (s *Server) tls() *tls.Config {
	config := &tls.Config{GetCertificate: s.certificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.clients != nil {
		config.GetConfigForClient = s.clients.requestCertificate(config.Clone())
	}
	return config
}

// Listen takes a port before anything is started, so that one that is taken is an
// error at once.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serve admission: %w (choose another --port)", err)
	}
	return listener, nil
}

// timedOut reports whether a client was too slow.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
