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

// drainWithin is how long requests in flight may take to end after SIGTERM.
const drainWithin = 5 * time.Second

type options struct {
	handover
	address, release string
	warmUp           time.Duration
}

// serve answers requests until ctx ends: with the listening socket of the twin that
// serves, or if there is none with one of its own. A twin that has handed its socket
// over goes on with the connections that it has; if it ended, the kubelet would start it
// again beside its successor.
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
				// The client's next request goes to the successor.
				w.Header().Set("Connection", "close")
			}
			_, _ = fmt.Fprintln(w, o.release, o.version) // a client that is gone needs no answer
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
		// Close frees this process's part of the socket; the successor's stays open.
		_ = listener.Close()
		log.Printf("release %s, version %s: handed over", o.release, o.version)
		<-ctx.Done()
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	return server.Shutdown(draining)
}

// listener is the predecessor's listening socket, with the connection over which it
// was given, or a new one.
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
