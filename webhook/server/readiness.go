package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

var errNotSynced = errors.New("the caches of the webhook are not synced yet")

// WhenSynced returns a responder that answers with status 503 until the caches are synced.
func WhenSynced(synced func() bool, respond Responder) Responder {
	return func(ctx context.Context, buffers *Buffers) (status int, err error) {
		if !synced() {
			return http.StatusServiceUnavailable, errNotSynced
		}
		return respond(ctx, buffers)
	}
}

var errShuttingDown = errors.New("the process is shutting down")

// Ready returns a readiness check. The check fails until the caches are synced, while the server
// has no certificate, and during the shutdown.
func (s *Server) Ready(synced func() bool) healthz.Checker {
	return func(*http.Request) error {
		switch {
		case s.shuttingDown.Load():
			return errShuttingDown
		case !synced():
			return errNotSynced
		}
		_, err := s.certificate(nil)
		return err
	}
}

// DelayShutdown returns a context that ends when delay has elapsed after the end of ctx. During the delay, the
// server is unready, but still answers requests, because nodes continue to route requests to the server for
// some time.
func (s *Server) DelayShutdown(ctx context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		s.shuttingDown.Store(true)
		time.AfterFunc(delay, end)
	})
	return lasting, func() {
		stop()
		end()
	}
}
