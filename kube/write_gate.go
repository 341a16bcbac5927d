package kube

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// SendIf calls send, and returns the error of send. client-go sends the request of send only if check returns
// nil. check runs before each attempt, after the rate limiter of client-go and after the wait for a
// Retry-After. check runs again when the connection reads the body. The end of ctx cancels a request that
// waits in client-go, but not a request that is in flight. arrived reports whether the API server may have
// executed the request.
func SendIf(ctx context.Context, check func() error, send func(context.Context) error) (arrived bool, err error) {
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	w := &guardedWrite{check: check, end: end}
	defer context.AfterFunc(ctx, w.cancel)()
	err = send(context.WithValue(sending, guardedWriteKey{}, w))
	return w.arrived, err
}

type guardedWriteKey struct{}

// guardedWrite is the state of a request of SendIf. client-go may send the request several times.
type guardedWrite struct {
	check func() error
	end   context.CancelFunc

	mu                sync.Mutex
	onWire, cancelled bool
	arrived           bool
	// rejection is the error of the second check, which runs when the transport reads the request body.
	rejection error
}

func (w *guardedWrite) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancelled = true
	if !w.onWire {
		w.end()
	}
}

func (w *guardedWrite) sent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onWire = true
}

// answered records the result of an attempt. If the response has a Retry-After, client-go waits
// and retries.
func (w *guardedWrite) answered(response *http.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		w.arrived = true
	}
	if err == nil && response.Header.Get("Retry-After") != "" {
		w.onWire = false
		if w.cancelled {
			w.end()
		}
	}
}

// writeGate runs the check of each guarded request. writeGate is the innermost round tripper of a client,
// because outer round trippers may delay a request after the check.
type writeGate struct{ http.RoundTripper }

// NewWriteGate returns a round tripper that runs the check of each request of SendIf. Other requests pass
// without a check.
func NewWriteGate(next http.RoundTripper) http.RoundTripper { return writeGate{next} }

// RoundTrip implements http.RoundTripper.
func (g writeGate) RoundTrip(request *http.Request) (*http.Response, error) {
	w, guarded := request.Context().Value(guardedWriteKey{}).(*guardedWrite)
	if !guarded {
		return g.RoundTripper.RoundTrip(request)
	}
	w.sent()
	if err := w.check(); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	response, err := g.RoundTripper.RoundTrip(w.guard(request))
	if rejection := w.rejected(); err != nil && rejection != nil {
		return nil, rejection
	}
	w.answered(response, err)
	return response, err
}

// guard returns a request whose body is read only after another check. The second check is necessary because
// opening a connection may take seconds, and because the HTTP/2 transport retries some requests.
func (w *guardedWrite) guard(request *http.Request) *http.Request {
	if request.Body == nil || request.Body == http.NoBody {
		return request
	}
	guarded := request.WithContext(request.Context())
	guarded.Body = &guardedBody{ReadCloser: request.Body, write: w}
	if request.GetBody != nil {
		guarded.GetBody = func() (io.ReadCloser, error) {
			body, err := request.GetBody()
			return &guardedBody{ReadCloser: body, write: w}, err
		}
	}
	return guarded
}

// guardedBody runs the check before the first byte is read. If the check fails, the API server does not
// receive the body, and does not execute the request.
type guardedBody struct {
	io.ReadCloser
	write *guardedWrite
	// checked is set by the first Read.
	checked bool
}

// Read implements io.Reader.
func (b *guardedBody) Read(into []byte) (int, error) {
	if !b.checked {
		b.checked = true
		if err := b.write.check(); err != nil {
			b.write.reject(err)
			return 0, err
		}
	}
	return b.ReadCloser.Read(into)
}

func (w *guardedWrite) reject(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rejection = err
}

func (w *guardedWrite) rejected() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rejection
}

// WrappedRoundTripper implements net.RoundTripperWrapper of client-go.
func (g writeGate) WrappedRoundTripper() http.RoundTripper { return g.RoundTripper }
