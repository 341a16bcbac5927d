package main

import (
	"context"
	"crypto/tls"
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
)

// The throttle forwards one in passedOf requests to the API server, and answers the other requests with 429.
const passedOf = 4

// startThrottle starts a proxy that answers most requests with 429, like an overloaded API server, and returns the
// address of the proxy. apiServer is the address of the API server. The proxy uses the certificate of the API
// server in the directory certs.
func startThrottle(ctx context.Context, apiServer, certs string) (address string, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen as a throttled API server: %w", err)
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: apiServer})
	forward.FlushInterval = -1
	forward.ErrorLog = log.New(io.Discard, "", 0)
	forward.Transport = &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, // The API server runs on this machine.
	}
	var requests atomic.Int64
	server := &http.Server{ErrorLog: forward.ErrorLog, ReadHeaderTimeout: 0, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%passedOf != 0 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests, please try again later", http.StatusTooManyRequests)
			return
		}
		forward.ServeHTTP(w, r)
	})}
	go func() {
		err := server.ServeTLS(listener, filepath.Join(certs, "apiserver.crt"), filepath.Join(certs, "apiserver.key"))
		if !errors.Is(err, http.ErrServerClosed) {
			log.Println("chaos: throttled API server:", err)
		}
	}()
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}
