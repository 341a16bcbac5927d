package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// served is a started server, with a client of the server.
type served struct {
	*Server
	address string
	roots   *x509.CertPool
	client  *http.Client
	stop    context.CancelFunc
}

// newServed returns a server that responds to requests on reviewPath with an AdmissionReview.
func newServed(t *testing.T, change func(*Server)) *served {
	t.Helper()
	certificate, roots := selfSigned(t)
	made, err := New(Options{
		Log: logr.Discard(), Registerer: prometheus.NewRegistry(),
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
	})
	require.NoError(t, err)
	s := &served{roots: roots, Server: made}
	if change != nil {
		change(s.Server)
	}
	s.Register(reviewPath, reviewSize(), func(_ context.Context, buffers *Buffers) (int, error) {
		if !json.Valid(buffers.Body.Bytes()) {
			return http.StatusBadRequest, errors.New("no JSON")
		}
		buffers.Answer.WriteString(answered)
		return http.StatusOK, nil
	})
	s.client = s.NewClient()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	ended := make(chan error, 1)
	go func() { ended <- s.Runnable(listener).Start(ctx) }()
	t.Cleanup(func() {
		stop()
		s.client.CloseIdleConnections()
		assert.NoError(t, <-ended)
	})
	return s
}

const (
	reviewPath = "/review"
	// reviewBody is the part of a review that a server checks.
	reviewBody = `{"kind":"AdmissionReview"}`
	answered   = `{"kind":"AdmissionReview","response":{}}`
)

func reviewSize() Size { return Size{Bytes: 7 << 20, Values: 250_000, PerByte: 4, PerValue: 1000} }

// selfSigned returns a certificate for example.com, and the roots that trust the certificate.
func selfSigned(t *testing.T) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	made := httptest.NewTLSServer(nil)
	defer made.Close()
	roots := x509.NewCertPool()
	roots.AddCert(made.Certificate())
	return &made.TLS.Certificates[0], roots
}

func valueOf(t *testing.T, metric prometheus.Metric) float64 {
	t.Helper()
	var written dto.Metric
	require.NoError(t, metric.Write(&written))
	return written.GetCounter().GetValue() + written.GetGauge().GetValue()
}

func (s *served) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: "example.com", MinVersion: tls.VersionTLS10}
}

// NewClient returns a client with its own connections.
func (s *served) NewClient() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: s.clientTLS()}}
}

// Post sends body to path, and copies the body of the response to answer. Post returns the HTTP status, or 0
// if there is no response.
func (s *served) Post(t *testing.T, client *http.Client, path string, body []byte, answer io.Writer) (status int) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+path, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(answer, response.Body)
	return response.StatusCode
}

func (s *served) do(t *testing.T, method, path, contentType string, body io.Reader) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.address+path, body)
	require.NoError(t, err)
	request.Header.Set("Content-Type", contentType)
	response, err := s.client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func TestInvalidRequestsGetA4xx(t *testing.T) {
	s := newServed(t, nil)
	const asJSON = "application/json"
	for name, c := range map[string]struct {
		method, path, contentType string
		want                      int
		says                      string
	}{
		"a review":                {http.MethodPost, reviewPath, asJSON, 200, answered},
		"a parameter of the type": {http.MethodPost, reviewPath, "application/json; charset=utf-8", 200, answered},
		"wrong path":              {http.MethodPost, "/", asJSON, 404, ""},
		"wrong method":            {http.MethodGet, reviewPath, asJSON, 405, "use POST"},
		"put":                     {http.MethodPut, reviewPath, asJSON, 405, "use POST"},
		"wrong content type":      {http.MethodPost, reviewPath, "text/plain", 415, "send application/json"},
		"no content type":         {http.MethodPost, reviewPath, "", 415, "send application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := s.do(t, c.method, c.path, c.contentType, strings.NewReader(reviewBody))
			assert.Equal(t, c.want, status, answer)
			assert.Contains(t, answer, c.says)
		})
	}
	assert.Equal(t, 2.0, valueOf(t, s.metrics.requests.With(prometheus.Labels{"path": reviewPath, "code": "200"})))
	assert.Equal(t, 2.0, valueOf(t, s.metrics.requests.With(prometheus.Labels{"path": reviewPath, "code": "405"})))
}

// The server rejects a body with a large Content-Length without reading the body.
func TestALargeBodyIsRejectedUnread(t *testing.T) {
	s := newServed(t, nil)
	c := s.dial(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", reviewPath, 10<<20)
	require.NoError(t, err)
	_, err = io.CopyN(c, letters{}, 8<<10)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestALargeBodyOfUnknownLengthIsCutOff(t *testing.T) {
	s := newServed(t, nil)
	endless := io.MultiReader(strings.NewReader(`{"x":"`), io.LimitReader(letters{}, 10<<20))
	status, answer := s.do(t, http.MethodPost, reviewPath, "application/json", endless)
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
	assert.Contains(t, answer, "the request body is too large: the limit is 7340032 bytes")
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestHugeHeadersAreRejected(t *testing.T) {
	s := newServed(t, nil)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+reviewPath, nil)
	require.NoError(t, err)
	request.Header.Set("X", strings.Repeat("x", 2*maxHeaderBytes))
	response, err := s.client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
}

func TestOldTLSAndHTTP2AreNotSpoken(t *testing.T) {
	s := newServed(t, nil)
	for version, works := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		config := s.clientTLS()
		config.MaxVersion = version
		c, err := tls.Dial("tcp", s.address, config)
		assert.Equal(t, works, err == nil, tls.VersionName(version))
		if err == nil {
			assert.NoError(t, c.Close())
		}
	}
	config := s.clientTLS()
	config.NextProtos = []string{"h2", "http/1.1"}
	c, err := tls.Dial("tcp", s.address, config)
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
}

func TestSlowClientsAreDisconnected(t *testing.T) {
	// late is longer than the time that the client needs for a handshake and a header.
	soon, late := 20*time.Millisecond, time.Second
	for name, c := range map[string]struct {
		change func(*timeouts)
		// sends is all that the client sends.
		sends string
	}{
		"header":  {func(l *timeouts) { l.handshake = late }, "POST " + reviewPath + " HTTP/1.1\r\nHost: loc"},
		"body":    {func(l *timeouts) { l.request = late }, "POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"},
		"silence": {func(l *timeouts) { l.idle = soon }, "POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(t, func(s *Server) { c.change(&s.timeouts) })
			connection := s.dial(t)
			_, err := io.WriteString(connection, c.sends)
			require.NoError(t, err)
			_, err = io.ReadAll(connection)
			if !errors.Is(err, syscall.ECONNRESET) { // A close with unread data resets the connection.
				require.NoError(t, err, "the server closes the connection")
			}
		})
	}
	t.Run("handshake", func(t *testing.T) {
		s := newServed(t, func(s *Server) { s.timeouts.handshake = soon })
		connection, err := net.Dial("tcp", s.address)
		require.NoError(t, err)
		defer connection.Close()
		_, err = io.ReadAll(connection)
		require.NoError(t, err, "the server closes the connection")
	})
}

func (s *served) dial(t *testing.T) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", s.address, s.clientTLS())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAPanicIsOneFailedRequest(t *testing.T) {
	s := newServed(t, func(s *Server) {
		s.Register("/panics", reviewSize(), func(context.Context, *Buffers) (int, error) { panic("bug") })
	})
	status, _ := s.do(t, http.MethodPost, "/panics", "application/json", strings.NewReader(reviewBody))
	assert.Equal(t, http.StatusInternalServerError, status)
	status, _ = s.do(t, http.MethodPost, reviewPath, "application/json", strings.NewReader(reviewBody))
	assert.Equal(t, http.StatusOK, status)
}

func TestReadinessNeedsCachesAndACertificateAndNoShutdown(t *testing.T) {
	s := newServed(t, nil)
	errNone := errors.New("no certificate yet")
	none, synced := errNone, false
	s.certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, none }
	ready := s.Ready(func() bool { return synced })
	require.ErrorIs(t, ready(nil), errNotSynced)
	synced = true
	require.ErrorIs(t, ready(nil), errNone)
	none = nil
	require.NoError(t, ready(nil))
	s.shuttingDown.Store(true)
	require.ErrorIs(t, ready(nil), errShuttingDown)
}

func TestRequestsAreAnsweredOnceTheCachesAreSynced(t *testing.T) {
	synced := false
	respond := WhenSynced(func() bool { return synced }, func(context.Context, *Buffers) (int, error) { return http.StatusOK, nil })
	status, err := respond(t.Context(), &Buffers{})
	require.ErrorIs(t, err, errNotSynced)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	synced = true
	_, err = respond(t.Context(), &Buffers{})
	require.NoError(t, err)
}

// During the shutdown delay, the server answers requests on existing and on new connections, and closes each
// connection after the answer.
func TestItAnswersDuringTheShutdownDelay(t *testing.T) {
	s := newServed(t, nil)
	kept := s.dial(t)
	reader := bufio.NewReader(kept)
	answer := func() *http.Response {
		_, err := io.WriteString(kept, wholeRequest())
		require.NoError(t, err)
		response, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		return response
	}
	require.False(t, answer().Close)
	ctx, leave := context.WithCancel(t.Context())
	lasting, end := s.DelayShutdown(ctx, time.Hour)
	defer end()
	leave()
	require.Eventually(t, s.shuttingDown.Load, time.Minute, time.Millisecond)
	require.NoError(t, lasting.Err())
	require.True(t, answer().Close)
	status, _ := s.do(t, http.MethodPost, reviewPath, "application/json", strings.NewReader(reviewBody))
	require.Equal(t, http.StatusOK, status)
}

func TestTheEndComesAfterTheDelay(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	lasting, end := new(Server).DelayShutdown(ctx, time.Millisecond)
	defer end()
	leave()
	<-lasting.Done()
}
