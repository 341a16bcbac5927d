package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The throttle forwards one of passedOf requests to the API server, and answers the other requests with 429.
const passedOf = 4

// throttle is a proxy of the API server that answers most requests with 429, like an overloaded API server.
type throttle struct {
	server   *http.Server
	address  string
	requests atomic.Int64
}

// newThrottle starts a throttle for the API server at the address apiServer. The throttle uses the
// certificate of the API server in the directory certs.
func newThrottle(ctx context.Context, apiServer, certs string) (*throttle, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen as a throttled API server: %w", err)
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: apiServer})
	forward.FlushInterval = -1
	forward.ErrorLog = log.New(io.Discard, "", 0)
	forward.Transport = &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, // The API server runs on this machine.
	}
	t := &throttle{address: listener.Addr().String()}
	t.server = &http.Server{ErrorLog: forward.ErrorLog, ReadHeaderTimeout: 0, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.requests.Add(1)%passedOf != 0 {
			reject(w)
			return
		}
		forward.ServeHTTP(w, r)
	})}
	go func() {
		err := t.server.ServeTLS(listener, filepath.Join(certs, "apiserver.crt"), filepath.Join(certs, "apiserver.key"))
		if !errors.Is(err, http.ErrServerClosed) {
			log.Println("chaos: throttled API server:", err)
		}
	}()
	return t, nil
}

func reject(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // A client that has closed the connection retries.
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: "too many requests, please try again later", Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests,
	})
}
