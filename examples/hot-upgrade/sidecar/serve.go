package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// drainWithin is the timeout for requests in flight after SIGTERM.
const drainWithin = 5 * time.Second

type options struct {
	handover
	address, release string
	warmUp           time.Duration
}

// serve answers requests until ctx ends. serve uses the listening socket of the serving twin or, if no twin
// serves, a new socket. After a handover, serve answers requests on open connections. serve returns only after
// ctx ends, because the kubelet restarts a container that exits.
func serve(ctx context.Context, o options) error {
	select {
	case <-time.After(o.warmUp):
	case <-ctx.Done():
		return nil
	}
	listener, predecessor, err := o.listener(ctx)
	if err != nil {
		return err
	}
	var left atomic.Bool
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if left.Load() {
				// The client opens a new connection for the next request, so that the successor receives the
				// request.
				w.Header().Set("Connection", "close")
			}
			_, _ = fmt.Fprintln(w, o.release, o.version) // A client that has disconnected needs no answer.
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	successors, err := o.announce(ctx, predecessor)
	if err != nil {
		return err
	}
	defer func() { _ = successors.Close() }()
	log.Printf("release %s, version %s: serving", o.release, o.version)
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	case <-o.handOn(successors, listener):
		left.Store(true)
		// Close closes the file descriptor of this process. The file descriptor of the successor
		// stays open.
		_ = listener.Close()
		log.Printf("release %s, version %s: handed over", o.release, o.version)
		<-ctx.Done()
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	return server.Shutdown(draining)
}

// listener returns the listening socket of the predecessor and the connection to the predecessor. If there is
// no predecessor, listener returns a new listening socket.
func (o options) listener(ctx context.Context) (net.Listener, *net.UnixConn, error) {
	predecessor, err := o.dial(ctx)
	if errors.Is(err, errNotServing) {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.address)
		return listener, nil, err
	}
	if err != nil {
		return nil, nil, err
	}
	listener, err := takeOver(predecessor)
	return listener, predecessor, err
}
