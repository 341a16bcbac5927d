package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

var errNotSynced = errors.New("the webhook does not know all SidecarSets yet")

// WhenSynced answers HTTP 503 before caches are filled.
func WhenSynced(synced func() bool, respond Responder) Responder {
	return func(ctx context.Context, buffers *Buffers) (status int, err error) {
		if !synced() {
			return http.StatusServiceUnavailable, errNotSynced
		}
		return respond(ctx, buffers)
	}
}

var errShuttingDown = errors.New("the process is about to end")

// Ready is a readiness check: it fails before caches are filled, without a
// certificate, and once the process is to end.
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

// DelayShutdown returns a context that ends a delay after the given one. Until then the
// server is not ready any more, but answers: routes to it are removed late.
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
