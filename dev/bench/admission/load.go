package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
)

// load sends one request again and again. It is lean, because it shares the
// machine with what it measures: the bytes are made once, and one goroutine
// both writes and reads a connection.
type load struct {
	config  *tls.Config
	address string
	request []byte
	want    []byte
}

// newLoad also checks one answer thoroughly; later ones have to be as long.
func newLoad(address string, trusted *x509.CertPool, app string, sidecars int) (*load, error) {
	body, err := review(app)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s?timeout=5s HTTP/1.1\r\nHost: %s\r\nUser-Agent: kube-apiserver-admission\r\nContent-Length: %d\r\nAccept: application/json, */*\r\n"+
		"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n", podPath, address, len(body))
	l := &load{
		address: address, request: append([]byte(head), body...),
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the webhook's address: %w", err)
	}
	l.config = &tls.Config{ServerName: host, RootCAs: trusted, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13}
	c, err := l.dial(context.Background())
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.exchange(l.request); err != nil {
		return nil, err
	}
	l.want = bytes.Clone(c.answer)
	return l, check(l.want, sidecars)
}

// check makes sure that the answer brings the containers.
func check(answer []byte, sidecars int) error {
	var reviewed admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &reviewed); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if reviewed.Response == nil || !reviewed.Response.Allowed {
		return fmt.Errorf("the pod is refused: %s", answer)
	}
	if found := bytes.Count(reviewed.Response.Patch, []byte(`"IS_INJECTED"`)); found != sidecars {
		return fmt.Errorf("the answer brings %d sidecars, not %d: %s", found, sidecars, reviewed.Response.Patch)
	}
	return nil
}

// run loads connections for a while.
func (l *load) run(ctx context.Context, p pattern, duration time.Duration) (*result, error) {
	latencies := make([][]time.Duration, p.kept+p.opened)
	all, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range latencies {
		use := l.hammer
		if i >= p.kept {
			use = l.hammerAnew
		}
		all.Go(func() (err error) {
			latencies[i], err = use(ctx, began.Add(duration))
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	took := time.Since(began)
	sorted := slices.Concat(latencies...)
	slices.Sort(sorted)
	if len(sorted) == 0 {
		return nil, errors.New("no request was answered")
	}
	return &result{
		pattern: p, requests: len(sorted), took: took,
		p50: sorted[len(sorted)/2], p99: sorted[len(sorted)*99/100],
	}, nil
}

// hammer keeps its connection.
func (l *load) hammer(ctx context.Context, until time.Time) ([]time.Duration, error) {
	c, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return l.repeat(ctx, until, func() error { return l.ask(c) })
}

// hammerAnew takes a new connection for each request, whose time is part of it.
func (l *load) hammerAnew(ctx context.Context, until time.Time) ([]time.Duration, error) {
	return l.repeat(ctx, until, func() error {
		c, err := l.dial(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return l.ask(c)
	})
}

func (l *load) repeat(ctx context.Context, until time.Time, ask func() error) ([]time.Duration, error) {
	taken := make([]time.Duration, 0, 1<<16)
	for now := time.Now(); now.Before(until) && ctx.Err() == nil; {
		if err := ask(); err != nil {
			return nil, err
		}
		next := time.Now()
		taken = append(taken, next.Sub(now))
		now = next
	}
	return taken, ctx.Err()
}

func (l *load) ask(c *connection) error {
	if err := c.exchange(l.request); err != nil {
		return err
	}
	// Timestamps in the answer differ, but not in length.
	if len(c.answer) != len(l.want) {
		return fmt.Errorf("an answer differs: %s", c.answer)
	}
	return nil
}
