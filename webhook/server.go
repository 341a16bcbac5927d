package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
)

// drainPatience is how long running requests may take once the process ends.
const drainPatience = 15 * time.Second

const (
	// largestHeader bounds the header of a request, in bytes.
	largestHeader = 32 << 10
	// usualAnswer, in bytes, goes out with one write and as one TLS record.
	usualAnswer = 16 << 10
)

// limits are how long a client may take. API servers need far less; others get
// nothing for free.
type limits struct {
	handshake, request, answer, idle time.Duration
}

func usualLimits() limits {
	return limits{
		// TLS, and then each header.
		handshake: 5 * time.Second,
		// The body, since its header.
		request: 15 * time.Second,
		// To be decided, and then to be sent; API servers give up after 10 s.
		answer: 20 * time.Second,
		// API servers close idle connections after 90 s. Who closes first must
		// be the client, or a request meets a connection that is being closed.
		idle: 2 * time.Minute,
	}
}

// largestAdmission bounds an AdmissionReview, in bytes: two objects, of 3 MiB at
// most each as the API server takes them, and what a review adds.
const largestAdmission = 7 << 20

// server serves admission over HTTPS to the API server, and turns others away.
type server struct {
	log         logr.Logger
	port        int
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	requests    *prometheus.CounterVec
	limits      limits
	routes      map[string]route
	// exchanges are used again.
	exchanges sync.Pool
	serving   atomic.Bool
}

// responder makes the answer of an exchange from its body. An error comes with the
// HTTP status to refuse with.
type responder func(context.Context, *exchange) (status int, err error)

type route struct {
	respond responder
	// largest body, in bytes.
	largest  int64
	requests *prometheus.CounterVec
}

// Register serves a path. The responder gets only requests that look like one of
// the API server's, with a body of at most so many bytes.
func (s *server) Register(path string, largest int64, respond responder) {
	if s.routes == nil {
		s.routes = map[string]route{}
	}
	s.routes[path] = route{respond, largest, s.requests.MustCurryWith(prometheus.Labels{"path": path})}
}

// respond answers one request. The context is not the client's: one that went
// away is noticed when it is answered.
func (s *server) respond(ctx context.Context, request *fasthttp.RequestCtx) {
	route, known := s.routes[string(request.Path())]
	if !known {
		refuse(request, http.StatusNotFound, errNothingHere)
		closeAfter(request)
		return
	}
	x, used := s.exchanges.Get().(*exchange)
	if !used {
		x = &exchange{}
	}
	defer s.giveBack(x)
	status, err := route.check(request)
	if err == nil {
		status, err = x.read(request.RequestBodyStream(), route.largest)
	}
	unread := err != nil
	if err == nil {
		status, err = s.decide(ctx, route.respond, x)
	}
	if err != nil {
		refuse(request, status, err)
	} else {
		request.SetContentType("application/json")
		request.SetBody(x.answer.Bytes())
	}
	// Chunks may come with a length that says something else.
	if unread || request.Request.Header.ContentLength() < 0 {
		closeAfter(request)
	}
	route.requests.WithLabelValues(strconv.Itoa(request.Response.StatusCode())).Inc()
}

var (
	errNothingHere = errors.New("nothing is served here")
	errMethod      = errors.New("use POST")
	errMedia       = errors.New("send application/json")
	errInternal    = errors.New("internal error, see the webhook's log")
)

// check refuses what no API server sends, without reading its body.
func (r route) check(request *fasthttp.RequestCtx) (status int, err error) {
	switch {
	case !request.IsPost():
		return http.StatusMethodNotAllowed, errMethod
	case !isJSON(string(request.Request.Header.ContentType())):
		return http.StatusUnsupportedMediaType, errMedia
	case int64(request.Request.Header.ContentLength()) > r.largest:
		return http.StatusRequestEntityTooLarge, tooLarge(r.largest)
	}
	return http.StatusOK, nil
}

func tooLarge(largest int64) error { return fmt.Errorf("send at most %d bytes", largest) }

func isJSON(contentType string) bool {
	const want = "application/json"
	if contentType == want {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == want
}

// decide keeps one request that fails from being more than that.
func (s *server) decide(ctx context.Context, respond responder, x *exchange) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.answer)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error(fmt.Errorf("panic: %v", cause), "admission failed", "stack", string(debug.Stack()))
			status, err = http.StatusInternalServerError, errInternal
		}
	}()
	return respond(ctx, x)
}

func (s *server) giveBack(x *exchange) {
	if max(x.body.Cap(), x.answer.Cap(), cap(x.patch)) > keptMemory {
		return
	}
	x.body.Reset()
	x.answer.Reset()
	s.exchanges.Put(x)
}

func refuse(request *fasthttp.RequestCtx, status int, err error) {
	request.Error(err.Error(), status)
	if status == http.StatusMethodNotAllowed {
		request.Response.Header.Set("Allow", http.MethodPost)
	}
}

// malformed answers what is no HTTP, comes too slowly, or has too large a header.
func malformed(request *fasthttp.RequestCtx, err error) {
	status := http.StatusBadRequest
	var large *fasthttp.ErrSmallBuffer
	var slow net.Error
	switch {
	case errors.As(err, &large):
		status = http.StatusRequestHeaderFieldsTooLarge
	case errors.As(err, &slow) && slow.Timeout():
		status = http.StatusRequestTimeout
	}
	refuse(request, status, errors.New(http.StatusText(status)))
	closeAfter(request)
}

// Start serves until the context ends, and then until running requests have
// their answers.
func (s *server) Start(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("serve admission: %w (choose another --port)", err)
	}
	return s.serve(ctx, listener)
}

func (s *server) serve(ctx context.Context, plain net.Listener) error {
	// HTTP/1.1 is what API servers speak to webhooks, so that replicas share the load.
	secured := listener{plain, &tls.Config{
		GetCertificate: s.certificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}}
	serving := s.newHTTP(context.WithoutCancel(ctx))
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainPatience)
		defer cancel()
		err := serving.ShutdownWithContext(patience)
		// Before it serves, a shutdown does nothing.
		_ = plain.Close()
		drained <- err
	}()
	s.serving.Store(true)
	if err := serving.Serve(secured); err != nil {
		return fmt.Errorf("serve admission: %w", err)
	}
	if err := <-drained; err != nil {
		return fmt.Errorf("finish running admissions: %w", err)
	}
	return nil
}

func (s *server) newHTTP(ctx context.Context) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:      func(request *fasthttp.RequestCtx) { s.respond(ctx, request) },
		ErrorHandler: malformed,
		HeaderReceived: func(*fasthttp.RequestHeader) fasthttp.RequestConfig {
			return fasthttp.RequestConfig{ReadTimeout: s.limits.request}
		},
		ReadTimeout:     s.limits.handshake,
		WriteTimeout:    s.limits.answer,
		IdleTimeout:     s.limits.idle,
		ReadBufferSize:  largestHeader,
		WriteBufferSize: usualAnswer,
		// A body that is only announced takes no memory.
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		CloseOnShutdown:              true,
		// Failed handshakes: port scanners make many.
		Logger: slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelDebug),
	}
}

var errNotServing = errors.New("admission is not served yet")

// Ready is a readiness check.
func (s *server) Ready(*http.Request) error {
	if s.serving.Load() {
		return nil
	}
	return errNotServing
}
