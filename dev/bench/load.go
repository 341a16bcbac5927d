package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
)

// review is the AdmissionReview that the API server sends when a ReplicaSet creates a pod.
// APP stands for the value of its label app.
//
//go:embed review.json
var review []byte

// load sends the same request repeatedly. It uses little processor time, because it shares the
// machine with the webhook. The bytes of the request are built once, and one goroutine both
// writes and reads a connection.
type load struct {
	config  *tls.Config
	address string
	request []byte
	// length is the length of the expected answer. Timestamps in the answers differ, but have the
	// same length.
	length int
}

// newLoad returns a load for a webhook. It also checks the complete content of one answer.
func newLoad(ctx context.Context, address string, trusted *x509.CertPool, app string, sidecars int) (*load, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the webhook's address: %w", err)
	}
	body := bytes.Replace(bytes.TrimSpace(review), []byte("APP"), []byte(app), 1)
	request := fmt.Appendf(nil, "POST /mutate-pod?timeout=5s HTTP/1.1\r\nHost: %s\r\nUser-Agent: kube-apiserver-admission\r\nContent-Length: %d\r\n"+
		"Accept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%s", address, len(body), body)
	l := &load{address: address, request: request}
	l.config = &tls.Config{ServerName: host, RootCAs: trusted, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13}
	c, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.exchange(l.request); err != nil {
		return nil, err
	}
	l.length = c.answer.Len()
	return l, checkAnswer(c.answer.Bytes(), sidecars)
}

// checkAnswer returns an error if the answer does not inject the containers.
func checkAnswer(answer []byte, sidecars int) error {
	var reviewed admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &reviewed); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if reviewed.Response == nil || !reviewed.Response.Allowed {
		return fmt.Errorf("the pod is rejected: %s", answer)
	}
	if found := bytes.Count(reviewed.Response.Patch, []byte(`"IS_INJECTED"`)); found != sidecars {
		return fmt.Errorf("the answer injects %d sidecars, not %d: %s", found, sidecars, reviewed.Response.Patch)
	}
	return nil
}

// pattern describes the use of connections. An API server keeps at most 25 idle connections to a
// webhook. A burst of more requests opens new connections, which are closed afterwards.
type pattern struct{ kept, opened int }

func (p pattern) String() string {
	switch {
	case p.opened == 0:
		return fmt.Sprintf("%d kept", p.kept)
	case p.kept == 0:
		return fmt.Sprintf("%d new", p.opened)
	}
	return fmt.Sprintf("%d kept, %d new", p.kept, p.opened)
}

// run loads the webhook for a duration, with a pattern of connections.
func (l *load) run(ctx context.Context, p pattern, duration time.Duration) (*loaded, error) {
	latencies := make([][]time.Duration, p.kept+p.opened)
	all, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range latencies {
		all.Go(func() (err error) {
			latencies[i], err = l.repeat(ctx, began.Add(duration), i < p.kept)
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
	return &loaded{
		pattern: p, requests: len(sorted), took: took,
		p50: sorted[len(sorted)/2], p99: sorted[len(sorted)*99/100],
	}, nil
}

// repeat sends requests through one connection, or through a new connection for each request. The
// latency includes the time to open a connection.
func (l *load) repeat(ctx context.Context, until time.Time, keep bool) ([]time.Duration, error) {
	var c *connection
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	taken := make([]time.Duration, 0, 1<<16)
	for now := time.Now(); now.Before(until) && ctx.Err() == nil; {
		if c == nil {
			opened, err := l.dial(ctx)
			if err != nil {
				return nil, err
			}
			c = opened
			if keep && len(taken) == 0 {
				now = time.Now()
			}
		}
		if err := c.exchange(l.request); err != nil {
			return nil, err
		}
		if c.answer.Len() != l.length {
			return nil, fmt.Errorf("an answer differs: %s", &c.answer)
		}
		if !keep {
			_ = c.Close()
			c = nil
		}
		next := time.Now()
		taken = append(taken, next.Sub(now))
		now = next
	}
	return taken, ctx.Err()
}

type connection struct {
	*tls.Conn
	reader *bufio.Reader
	answer bytes.Buffer
}

// buffered reads all arrived bytes with one system call. Without it, TLS needs two system calls
// for each record.
type buffered struct {
	net.Conn
	reader *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }

func (l *load) dial(ctx context.Context) (*connection, error) {
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, fmt.Errorf("connect to the webhook: %w", err)
	}
	secured := tls.Client(buffered{plain, bufio.NewReaderSize(plain, 64<<10)}, l.config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the webhook: %w", err), plain.Close())
	}
	return &connection{Conn: secured, reader: bufio.NewReaderSize(secured, 64<<10)}, nil
}

// exchange sends a request and reads the answer into the buffer of the connection.
func (c *connection) exchange(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	c.answer.Reset()
	if _, err := io.Copy(&c.answer, response.Body); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the webhook answers %s: %s", response.Status, &c.answer)
	}
	return nil
}

// loaded is the result of one run.
type loaded struct {
	pattern        pattern
	requests       int
	took, p50, p99 time.Duration
	// processor is the processor time of the webhook for each request, in seconds. peak is the
	// peak memory of the webhook, in MiB.
	processor, peak float64
}

const loadHeader = "others pod             connections  requests/s  p50 ms  p99 ms  CPU us  peak MiB"

func (r *loaded) rate() float64 { return float64(r.requests) / r.took.Seconds() }

func (r *loaded) String() string {
	milli := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%16s  %10.0f  %6.2f  %6.2f  %6.0f  %8.0f", r.pattern, r.rate(), milli(r.p50), milli(r.p99), 1e6*r.processor, r.peak)
}
