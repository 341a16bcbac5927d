package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/fixture"
)

// served is a server of pods and SidecarSets on a port of its own.
type served struct {
	*server
	address string
	roots   *x509.CertPool
	client  *http.Client
	stop    context.CancelFunc
}

func newServed(t *testing.T, change func(*server)) *served {
	t.Helper()
	certificates, err := newAuthority("hook", "system", "https://localhost:1")
	require.NoError(t, err)
	data, err := certificates.issue(time.Now())
	require.NoError(t, err)
	pair, err := keyPair(data)
	require.NoError(t, err)
	pods := handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side")))
	s := &served{roots: x509.NewCertPool(), server: &server{
		log: logr.Discard(), requests: pods.metrics.requests, inFlight: pods.metrics.inFlight, timeouts: defaultTimeouts(), load: newLoad(defaultBounds()),
		certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil },
	}}
	if change != nil {
		change(s.server)
	}
	s.Register(podPath, podSize(), reviews(pods.answer))
	s.Register(defaultingPath, setSize(), reviews(reviewed(admission.HandlerFunc(
		func(context.Context, admission.Request) admission.Response { return admission.Allowed("") },
	))))
	require.True(t, s.roots.AppendCertsFromPEM(data[caKey]))
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: s.clientTLS()}}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	ended := make(chan error, 1)
	go func() { ended <- s.on(listener).Start(ctx) }()
	t.Cleanup(func() {
		stop()
		s.client.CloseIdleConnections()
		assert.NoError(t, <-ended)
	})
	return s
}

func (s *served) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS10}
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

func TestWhatNoAPIServerSendsGetsA4xx(t *testing.T) {
	s := newServed(t, nil)
	const asJSON = "application/json"
	pod := string(reviewOf(t, fixture.Pod(fixture.Container("app"))))
	request := func(change, to string) string {
		changed := strings.Replace(pod, change, to, 1)
		require.NotEqual(t, pod, changed)
		return changed
	}
	for name, c := range map[string]struct {
		method, path, contentType, body string
		want                            int
		says                            string
	}{
		"a pod":                        {http.MethodPost, podPath, asJSON, pod, 200, `"patchType":"JSONPatch"`},
		"a parameter of the type":      {http.MethodPost, podPath, "application/json; charset=utf-8", pod, 200, `"allowed":true`},
		"wrong path":                   {http.MethodPost, "/", asJSON, pod, 404, ""},
		"wrong method":                 {http.MethodGet, podPath, asJSON, "", 405, "use POST"},
		"put":                          {http.MethodPut, podPath, asJSON, pod, 405, "use POST"},
		"wrong content type":           {http.MethodPost, podPath, "text/plain", pod, 415, "send application/json"},
		"no content type":              {http.MethodPost, podPath, "", pod, 415, "send application/json"},
		"empty body":                   {http.MethodPost, podPath, asJSON, "", 400, "read the AdmissionReview"},
		"not JSON":                     {http.MethodPost, podPath, asJSON, "hello", 400, "read the AdmissionReview"},
		"cut off":                      {http.MethodPost, podPath, asJSON, pod[:len(pod)/2], 400, "read the AdmissionReview"},
		"a list":                       {http.MethodPost, podPath, asJSON, "[]", 400, "read the AdmissionReview"},
		"null":                         {http.MethodPost, podPath, asJSON, "null", 400, errNoReview.Error()},
		"deep arrays":                  {http.MethodPost, podPath, asJSON, strings.Repeat("[", 6<<20), 400, "read the AdmissionReview"},
		"deep objects in the pod":      {http.MethodPost, podPath, asJSON, request(`"status":{}`, `"status":`+strings.Repeat(`{"a":`, 1<<20)), 400, "read the AdmissionReview"},
		"another kind of review":       {http.MethodPost, podPath, asJSON, request("AdmissionReview", "TokenReview"), 400, errNoReview.Error()},
		"another version":              {http.MethodPost, podPath, asJSON, request("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), 400, errNoReview.Error()},
		"no request":                   {http.MethodPost, podPath, asJSON, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400, errNoRequest.Error()},
		"no object":                    {http.MethodPost, podPath, asJSON, request(`"object":`, `"x":`), 400, errNoPod.Error()},
		"another kind":                 {http.MethodPost, podPath, asJSON, request(`"kind":"Pod"`, `"kind":"Node"`), 400, errNoPod.Error()},
		"another kind of object":       {http.MethodPost, podPath, asJSON, request(`"object":{`, `"object":{"kind":"Service",`), 400, errNoPod.Error()},
		"a number as object":           {http.MethodPost, podPath, asJSON, request(`"object":{`, `"object":5,"x":{`), 400, "read the AdmissionReview"},
		"a pod without metadata":       {http.MethodPost, podPath, asJSON, request(`"metadata":`, `"x":`), 400, errIncompletePod.Error()},
		"a pod without spec":           {http.MethodPost, podPath, asJSON, request(`"spec":`, `"x":`), 400, errIncompletePod.Error()},
		"labels of another type":       {http.MethodPost, podPath, asJSON, request(`"labels":`, `"labels":7,"x":`), 400, "read the AdmissionReview"},
		"a set's review with no body":  {http.MethodPost, defaultingPath, asJSON, "", 400, "read the AdmissionReview"},
		"a set's review of no version": {http.MethodPost, defaultingPath, asJSON, "{}", 400, errNoReview.Error()},
		"a set's review of nothing":    {http.MethodPost, defaultingPath, asJSON, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400, errNoRequest.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := s.do(t, c.method, c.path, c.contentType, strings.NewReader(c.body))
			assert.Equal(t, c.want, status, answer)
			assert.Contains(t, answer, c.says)
		})
	}
	assert.Equal(t, 2.0, valueOf(t, s.requests.With(prometheus.Labels{"path": podPath, "code": "200"})))
	assert.Equal(t, 2.0, valueOf(t, s.requests.With(prometheus.Labels{"path": podPath, "code": "405"})))
}

func TestASpecThatCannotBeReadRefusesThePod(t *testing.T) {
	s := newServed(t, nil)
	body := strings.Replace(string(reviewOf(t, fixture.Pod(fixture.Container("app")))), `"containers":`, `"containers":"none","x":`, 1)
	status, answer := s.do(t, http.MethodPost, podPath, "application/json", strings.NewReader(body))
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, answer, `"allowed":false`)
	assert.Contains(t, answer, `"code":400`)
	assert.Contains(t, answer, "read the pod's spec")
}

// A body that is announced too large is refused as soon as it begins.
func TestALargeBodyIsRefusedUnread(t *testing.T) {
	s := newServed(t, nil)
	c := s.dial(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", podPath, 10<<20)
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
	status, answer := s.do(t, http.MethodPost, podPath, "application/json", endless)
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
	assert.Contains(t, answer, "send at most 7340032 bytes")
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestHugeHeadersAreRefused(t *testing.T) {
	s := newServed(t, nil)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+podPath, nil)
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

func TestClientsThatDawdleAreCutOff(t *testing.T) {
	soon := 20 * time.Millisecond
	for name, c := range map[string]struct {
		change func(*timeouts)
		// sends is all that the client ever does.
		sends string
	}{
		"header":  {func(l *timeouts) { l.handshake = time.Second }, "POST " + podPath + " HTTP/1.1\r\nHost: loc"},
		"body":    {func(l *timeouts) { l.request = soon }, "POST " + podPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"},
		"silence": {func(l *timeouts) { l.idle = soon }, "POST " + podPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(t, func(s *server) { c.change(&s.timeouts) })
			connection := s.dial(t)
			_, err := io.WriteString(connection, c.sends)
			require.NoError(t, err)
			_, err = io.ReadAll(connection)
			require.NoError(t, err, "the server closes the connection")
		})
	}
	t.Run("handshake", func(t *testing.T) {
		s := newServed(t, func(s *server) { s.timeouts.handshake = soon })
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
	s := newServed(t, func(s *server) {
		s.Register("/panics", podSize(), reviews(reviewed(admission.HandlerFunc(
			func(context.Context, admission.Request) admission.Response { panic("bug") },
		))))
	})
	body := string(reviewOf(t, fixture.Pod()))
	status, _ := s.do(t, http.MethodPost, "/panics", "application/json", strings.NewReader(body))
	assert.Equal(t, http.StatusInternalServerError, status)
	status, _ = s.do(t, http.MethodPost, podPath, "application/json", strings.NewReader(body))
	assert.Equal(t, http.StatusOK, status)
}

func TestItIsReadyWhileItCanAnswerAndIsNotAboutToEnd(t *testing.T) {
	s := newServed(t, nil)
	none := errNoCertificate
	synced := false
	ready := s.ready(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, none }, func() bool { return synced })
	require.ErrorIs(t, ready(nil), errNotSynced)
	synced = true
	require.ErrorIs(t, ready(nil), errNoCertificate)
	none = nil
	require.NoError(t, ready(nil))
	s.shuttingDown.Store(true)
	require.ErrorIs(t, ready(nil), errShuttingDown)
}

// Whoever has not heard of the end yet is answered, on connections that are there
// and on new ones; none of them is kept.
func TestItAnswersAfterItHasTurnedUnready(t *testing.T) {
	s := newServed(t, nil)
	kept := s.dial(t)
	reader := bufio.NewReader(kept)
	answer := func() *http.Response {
		_, err := io.WriteString(kept, wholeRequest(t))
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
	lasting, end := s.delayShutdown(ctx, time.Hour)
	defer end()
	leave()
	require.Eventually(t, s.shuttingDown.Load, time.Minute, time.Millisecond)
	require.NoError(t, lasting.Err())
	require.True(t, answer().Close)
	status, _ := s.do(t, http.MethodPost, podPath, "application/json", bytes.NewReader(reviewOf(t, fixture.Pod())))
	require.Equal(t, http.StatusOK, status)
}

func TestTheEndComesAfterTheDelay(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	lasting, end := new(server).delayShutdown(ctx, time.Millisecond)
	defer end()
	leave()
	<-lasting.Done()
}
