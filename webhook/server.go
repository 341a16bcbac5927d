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
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// drainPatience is how long running requests may take once the process ends.
const drainPatience = 15 * time.Second

// largestHeader bounds the header of a request, in bytes.
const largestHeader = 32 << 10

// limits are how long a client may take. API servers need far less; others get
// nothing for free.
type limits struct {
	handshake, request, answer, idle time.Duration
}

func usualLimits() limits {
	return limits{
		// TLS, and then each header.
		handshake: 5 * time.Second,
		request:   15 * time.Second,
		// Since the header; API servers give up after 10 s.
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
	mux         http.ServeMux
	serving     atomic.Bool
}

// Register serves a path. The handler gets only requests that look like one of
// the API server's, with a body of at most so many bytes.
func (s *server) Register(path string, largest int64, handler http.Handler) {
	requests := s.requests.MustCurryWith(prometheus.Labels{"path": path})
	s.mux.Handle(path, promhttp.InstrumentHandlerCounter(requests, checked(largest, handler)))
}

// checked refuses what no API server sends, without reading its body.
func checked(largest int64, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
		case !isJSON(r.Header.Get("Content-Type")):
			http.Error(w, "send application/json", http.StatusUnsupportedMediaType)
		case r.ContentLength > largest:
			http.Error(w, tooLarge(largest), http.StatusRequestEntityTooLarge)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, largest)
			handler.ServeHTTP(w, r)
		}
	})
}

func tooLarge(largest int64) string { return fmt.Sprintf("send at most %d bytes", largest) }

func isJSON(contentType string) bool {
	const want = "application/json"
	if contentType == want {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == want
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

func (s *server) serve(ctx context.Context, listener net.Listener) error {
	// HTTP/1.1 is what API servers speak to webhooks, so that replicas share the load.
	secured := tls.NewListener(listener, &tls.Config{
		GetCertificate: s.certificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	serving := &http.Server{
		Handler:           &s.mux,
		ReadHeaderTimeout: s.limits.handshake,
		ReadTimeout:       s.limits.request,
		WriteTimeout:      s.limits.answer,
		IdleTimeout:       s.limits.idle,
		MaxHeaderBytes:    largestHeader,
		// Failed handshakes: port scanners make many.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelDebug),
	}
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainPatience)
		defer cancel()
		drained <- serving.Shutdown(patience)
	}()
	s.serving.Store(true)
	if err := serving.Serve(secured); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admission: %w", err)
	}
	if err := <-drained; err != nil {
		return fmt.Errorf("finish running admissions: %w", err)
	}
	return nil
}

var errNotServing = errors.New("admission is not served yet")

// Ready is a readiness check.
func (s *server) Ready(*http.Request) error {
	if s.serving.Load() {
		return nil
	}
	return errNotServing
}
