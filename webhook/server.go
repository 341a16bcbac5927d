package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// shutdownTimeout is how long running requests may take once the process ends.
	shutdownTimeout = 15 * time.Second
	// maxHeaderBytes bounds the header of a request, in bytes.
	maxHeaderBytes = 32 << 10
	// lingerTimeout is how long the rest of a refused request is waited for.
	lingerTimeout = time.Second
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

// server serves admission over HTTPS to the API server, and turns others away.
type server struct {
	log         logr.Logger
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// clients are whom to answer; nil is everybody.
	clients  *clientAuthority
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	timeouts timeouts
	load     *load
	mux      http.ServeMux
	// pool holds the buffers of requests that were answered.
	pool sync.Pool
	// shuttingDown is set once other replicas are to be called.
	shuttingDown atomic.Bool
}

// responder makes the answer of a request from its body. An error comes with the
// HTTP status to refuse with.
type responder func(context.Context, *requestBuffers) (status int, err error)

// route is a path that is served.
type route struct {
	respond  responder
	size     size
	requests *prometheus.CounterVec
}

// Register serves a path. The responder gets only requests that look like one of
// the API server's, with a body of at most this size.
func (s *server) Register(path string, size size, respond responder) {
	r := route{respond, size, s.requests.MustCurryWith(prometheus.Labels{"path": path})}
	s.mux.HandleFunc(path, func(w http.ResponseWriter, request *http.Request) {
		r.requests.WithLabelValues(strconv.Itoa(s.serve(w, request, &r))).Inc()
	})
}

// serve answers one request, and returns the HTTP status.
func (s *server) serve(w http.ResponseWriter, request *http.Request, r *route) int {
	buffers, used := s.pool.Get().(*requestBuffers)
	if !used {
		buffers = &requestBuffers{}
	}
	defer s.release(buffers)
	// What is large counts until its answer is sent: clients may be slow to take it.
	status, free, err := s.answer(request, r, buffers)
	if err != nil {
		free()
		return refuse(w, request, status, err)
	}
	defer free()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(buffers.answer.Len()))
	if s.shuttingDown.Load() {
		w.Header().Set("Connection", "close")
	}
	_, _ = w.Write(buffers.answer.Bytes()) // a client that went away needs no answer
	return http.StatusOK
}

// answer leaves it in the buffers. What is returned is to be called once nothing
// of that is of use any more.
func (s *server) answer(request *http.Request, r *route, buffers *requestBuffers) (status int, free func(), err error) {
	free = func() {}
	if status, err = s.check(request, r); err != nil {
		return status, free, err
	}
	leave, err := s.load.enter()
	if err != nil {
		return http.StatusTooManyRequests, free, err
	}
	defer leave()
	s.inFlight.Inc()
	defer s.inFlight.Dec()
	if free, err = s.load.reading(request.Context(), request.ContentLength, r.size.bytes); err != nil {
		return http.StatusTooManyRequests, free, err
	}
	if status, err = buffers.read(request.Body, request.ContentLength, r.size); err != nil {
		return status, free, err
	}
	decided, err := s.load.deciding(request.Context(), r.size.weight(buffers.body.Bytes()))
	if err != nil {
		return http.StatusTooManyRequests, free, err
	}
	defer decided()
	status, err = s.decide(request.Context(), r.respond, buffers)
	return status, free, err
}

var (
	errNothingHere = errors.New("nothing is served here")
	errUnknown     = errors.New("unauthorized")
	errMethod      = errors.New("use POST")
	errMedia       = errors.New("send application/json")
	errInternal    = errors.New("internal error, see the webhook's log")
)

// check refuses what no API server sends, without reading its body.
func (s *server) check(request *http.Request, r *route) (status int, err error) {
	switch {
	case !s.clients.knows(request.TLS):
		return http.StatusUnauthorized, errUnknown
	case request.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, errMethod
	case !isJSON(request.Header.Get("Content-Type")):
		return http.StatusUnsupportedMediaType, errMedia
	case request.ContentLength > r.size.bytes:
		return http.StatusRequestEntityTooLarge, r.size.tooLarge()
	}
	return http.StatusOK, nil
}

func isJSON(contentType string) bool {
	const want = "application/json"
	if contentType == want {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == want
}

// decide keeps one request that fails from being more than that.
func (s *server) decide(ctx context.Context, respond responder, buffers *requestBuffers) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.answer)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error(fmt.Errorf("panic: %v", cause), "admission failed", "stack", string(debug.Stack()))
			status, err = http.StatusInternalServerError, errInternal
		}
	}()
	return respond(ctx, buffers)
}

func (s *server) release(buffers *requestBuffers) {
	if max(buffers.body.Cap(), buffers.answer.Cap()) > maxPooledBuffer {
		return
	}
	buffers.body.Reset()
	buffers.answer.Reset()
	s.pool.Put(buffers)
}

// refuse answers with the reason, and ends the connection: only who asks as API
// servers do may keep one. It takes in what a client sends before it listens, or
// the kernel would take the answer back.
func refuse(w http.ResponseWriter, request *http.Request, status int, err error) int {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	if status == http.StatusTooManyRequests {
		// API servers try again by themselves.
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Connection", "close")
	connection := http.NewResponseController(w)
	duplex := connection.EnableFullDuplex()
	http.Error(w, err.Error(), status)
	if cmp.Or(duplex, connection.Flush(), connection.SetReadDeadline(time.Now().Add(lingerTimeout))) == nil {
		_, _ = io.Copy(io.Discard, request.Body)
	}
	return status
}

// on makes the server of a listener: it serves until its context ends, and then until running
// requests have their answers.
func (s *server) on(plain net.Listener) *manager.Server {
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
func (s *server) tls() *tls.Config {
	config := &tls.Config{GetCertificate: s.certificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.clients != nil {
		config.GetConfigForClient = s.clients.asked(config.Clone())
	}
	return config
}

// listen is done before anything else, so that a port that is taken is told at once.
func listen(ctx context.Context, port int) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serve admission: %w (choose another --port)", err)
	}
	return listener, nil
}

// timedOut tells of a client that was too slow.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

var errShuttingDown = errors.New("the process is about to end")

// ready is a readiness check. The server takes requests a while longer.
func (s *server) ready(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), synced func() bool) healthz.Checker {
	return func(*http.Request) error {
		switch {
		case s.shuttingDown.Load():
			return errShuttingDown
		case !synced():
			return errNotSynced
		}
		_, err := certificate(nil)
		return err
	}
}

// delayShutdown is a context that ends so much later than the given one. Until then the
// server is not ready any more, but answers whoever has not heard of that.
func (s *server) delayShutdown(ctx context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
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
