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

// Options are the options of a Server.
type Options struct {
	// Log reports panics and, at debug level, failed handshakes.
	Log logr.Logger
	// Certificate returns the serving certificate. If Certificate returns an error, the server is
	// unready.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAFile contains the CA of the API servers' client certificates. If ClientCAFile is
	// empty, the server answers every client.
	ClientCAFile string
	// Registerer registers the metrics of the server.
	Registerer prometheus.Registerer
}

// Server answers API servers over HTTPS. With a ClientCAFile, Server rejects other clients.
type Server struct {
	log         logr.Logger
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	clients     *clientAuthority
	metrics     *metrics
	timeouts    timeouts
	load        *load
	mux         http.ServeMux
	// pool contains unused *Buffers.
	pool sync.Pool
	// shuttingDown is true once clients should connect to other replicas.
	shuttingDown atomic.Bool
}

// New returns a server without routes. New returns an error if the client CA file is invalid.
func New(o Options) (*Server, error) {
	clients, err := newClientAuthority(o.ClientCAFile)
	if err != nil {
		return nil, err
	}
	return &Server{
		log: o.Log, certificate: o.Certificate, clients: clients, metrics: newMetrics(o.Registerer),
		timeouts: defaultTimeouts(), load: newLoad(defaultLimits()),
	}, nil
}

// Responder writes the answer to a request. If err is not nil, status is the HTTP status of the
// error.
type Responder func(context.Context, *Buffers) (status int, err error)

// route is a registered path.
type route struct {
	respond  Responder
	size     Size
	requests *prometheus.CounterVec
}

// Register adds a route. The responder is called only for requests that are within the size limit and have the
// form of requests of API servers.
func (s *Server) Register(path string, size Size, respond Responder) {
	r := route{respond, size, s.metrics.requests.MustCurryWith(prometheus.Labels{"path": path})}
	s.mux.HandleFunc(path, func(w http.ResponseWriter, request *http.Request) {
		r.requests.WithLabelValues(strconv.Itoa(s.serve(w, request, &r))).Inc()
	})
}

// serve answers a request, and returns the HTTP status.
func (s *Server) serve(w http.ResponseWriter, request *http.Request, r *route) int {
	buffers, used := s.pool.Get().(*Buffers)
	if !used {
		buffers = &Buffers{}
	}
	defer s.release(buffers)
	// The memory for a large body remains reserved until the answer is sent, because clients may be slow.
	status, release, err := s.answer(request, r, buffers)
	if err != nil {
		release()
		return reject(w, request, status, err)
	}
	defer release()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(buffers.Answer.Len()))
	if s.shuttingDown.Load() {
		w.Header().Set("Connection", "close")
	}
	_, _ = w.Write(buffers.Answer.Bytes()) // the client may have disconnected
	return http.StatusOK
}

// answer writes the answer into the buffers. The caller must call release after the last use of the
// buffers.
func (s *Server) answer(request *http.Request, r *route, buffers *Buffers) (status int, release func(), err error) {
	release = func() {}
	if status, err = s.check(request, r); err != nil {
		return status, release, err
	}
	leave, err := s.load.enter()
	if err != nil {
		return http.StatusTooManyRequests, release, err
	}
	defer leave()
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	if release, err = s.load.readBody(request.Context(), request.ContentLength, r.size.Bytes); err != nil {
		return http.StatusTooManyRequests, release, err
	}
	if status, err = buffers.read(request.Body, request.ContentLength, r.size); err != nil {
		return status, release, err
	}
	decoded, err := s.load.decode(request.Context(), r.size.Weight(buffers.Body.Bytes()))
	if err != nil {
		return http.StatusTooManyRequests, release, err
	}
	defer decoded()
	status, err = s.respond(request.Context(), r.respond, buffers)
	return status, release, err
}

var (
	errNotFound     = errors.New("no such path")
	errUnauthorized = errors.New("unauthorized")
	errMethod       = errors.New("use POST")
	errMedia        = errors.New("send application/json")
	errInternal     = errors.New("internal error, see the webhook's log")
)

// check rejects requests that no API server sends, without reading the body.
func (s *Server) check(request *http.Request, r *route) (status int, err error) {
	switch {
	case !s.clients.accepts(request.TLS):
		return http.StatusUnauthorized, errUnauthorized
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

// respond calls a responder. A panic fails only this request.
func (s *Server) respond(ctx context.Context, respond Responder, buffers *Buffers) (status int, err error) {
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

// lingerTimeout limits the time to read the rest of a rejected request.
const lingerTimeout = time.Second

// reject answers with the error, and closes the connection. reject reads the rest of the body before the
// connection is closed. Otherwise, the kernel would drop the answer before a client that is still sending
// has read the answer.
func reject(w http.ResponseWriter, request *http.Request, status int, err error) int {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	if status == http.StatusTooManyRequests {
		// API servers retry the request after this time.
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
