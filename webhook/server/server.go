package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

// Options of a Server.
type Options struct {
	// Log gets panics and, at debug level, failed handshakes.
	Log logr.Logger
	// Certificate is what to serve with; an error of it makes the server unready.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAFile holds the CA of the API servers' client certificates; empty
	// means that everybody is answered.
	ClientCAFile string
	// Registerer takes the server's metrics.
	Registerer prometheus.Registerer
}

// Server serves admission over HTTPS to the API server, and turns others away.
type Server struct {
	log         logr.Logger
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// clients are those to answer; nil is all of them.
	clients  *clientAuthority
	metrics  *metrics
	timeouts timeouts
	load     *load
	mux      http.ServeMux
	// pool holds the buffers of requests that were answered.
	pool sync.Pool
	// shuttingDown is set once other replicas are to be called.
	shuttingDown atomic.Bool
}

// New makes a server that serves nothing yet. A client CA file that cannot be used
// is an error.
func New(o Options) (*Server, error) {
	clients, err := newClientAuthority(o.ClientCAFile)
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Server{
		log: o.Log, certificate: o.Certificate, clients: clients, metrics: metrics,
		timeouts: defaultTimeouts(), load: newLoad(defaultBounds()),
	}, nil
}

// Responder makes the answer of a request from its body. An error comes with the
// HTTP status to refuse with.
type Responder func(context.Context, *Buffers) (status int, err error)

// route is a path that is served.
type route struct {
	respond  Responder
	size     Size
	requests *prometheus.CounterVec
}

// Register serves a path. The responder gets only requests that look like one of
// the API server's, with a body of at most this size.
func (s *Server) Register(path string, size Size, respond Responder) {
	r := route{respond, size, s.metrics.requests.MustCurryWith(prometheus.Labels{"path": path})}
	s.mux.HandleFunc(path, func(w http.ResponseWriter, request *http.Request) {
		r.requests.WithLabelValues(strconv.Itoa(s.serve(w, request, &r))).Inc()
	})
}

// serve answers one request, and returns the HTTP status.
func (s *Server) serve(w http.ResponseWriter, request *http.Request, r *route) int {
	buffers, used := s.pool.Get().(*Buffers)
	if !used {
		buffers = &Buffers{}
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
	w.Header().Set("Content-Length", strconv.Itoa(buffers.Answer.Len()))
	if s.shuttingDown.Load() {
		w.Header().Set("Connection", "close")
	}
	_, _ = w.Write(buffers.Answer.Bytes()) // a client that went away needs no answer
	return http.StatusOK
}

// answer leaves it in the buffers. What is returned is to be called once nothing
// of that is of use any more.
func (s *Server) answer(request *http.Request, r *route, buffers *Buffers) (status int, free func(), err error) {
	free = func() {}
	if status, err = s.check(request, r); err != nil {
		return status, free, err
	}
	leave, err := s.load.enter()
	if err != nil {
		return http.StatusTooManyRequests, free, err
	}
	defer leave()
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	if free, err = s.load.reading(request.Context(), request.ContentLength, r.size.Bytes); err != nil {
		return http.StatusTooManyRequests, free, err
	}
	if status, err = buffers.read(request.Body, request.ContentLength, r.size); err != nil {
		return status, free, err
	}
	decided, err := s.load.deciding(request.Context(), r.size.Weight(buffers.Body.Bytes()))
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
func (s *Server) check(request *http.Request, r *route) (status int, err error) {
	switch {
	case !s.clients.knows(request.TLS):
		return http.StatusUnauthorized, errUnknown
	case request.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, errMethod
	case !isJSON(request.Header.Get("Content-Type")):
		return http.StatusUnsupportedMediaType, errMedia
	case request.ContentLength > r.size.Bytes:
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

// decide makes a panic one failed request.
func (s *Server) decide(ctx context.Context, respond Responder, buffers *Buffers) (status int, err error) {
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

func (s *Server) release(buffers *Buffers) {
	if max(buffers.Body.Cap(), buffers.Answer.Cap()) > maxPooledBuffer {
		return
	}
	buffers.Body.Reset()
	buffers.Answer.Reset()
	s.pool.Put(buffers)
}

// lingerTimeout is how long the rest of a refused request is waited for.
const lingerTimeout = time.Second

// refuse answers with the reason, and ends the connection: only clients
// that ask as API servers do may keep one. The rest of the body is read, or the kernel
// would drop the answer before a client that is still sending has read it.
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
