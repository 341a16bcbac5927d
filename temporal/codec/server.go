package codec

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"golang.org/x/net/netutil"
)

const (
	// maxBody limits the size of a request, in bytes. A page of a history is smaller.
	maxBody = 8 << 20
	// maxConnections limits the open connections.
	maxConnections = 64

	headerTimeout = 5 * time.Second
	// callTimeout limits the time to read a request, and the time to write the response.
	callTimeout  = 30 * time.Second
	idleTimeout  = time.Minute
	closeTimeout = 10 * time.Second
)

// Server decrypts payloads for the Temporal UI and CLI. Clients of the server can decrypt the payloads of all
// histories.
type Server struct {
	// Codec decrypts the payloads. If Codec also encrypts, the server serves /encode.
	Codec *Codec
	// Address has the form host:port. Any address other than loopback needs TokenFile or
	// AllowUnauthenticated.
	Address string
	// TokenFile contains the bearer token of all requests. The file is read at each request. If
	// TokenFile is empty, requests need no token.
	TokenFile            string
	AllowUnauthenticated bool
	// Origins are the allowed origins of web pages, such as https://temporal.example.com.
	Origins []string
	// CertFile and KeyFile are read at each handshake. If CertFile and KeyFile are empty, the server does not
	// use TLS.
	CertFile, KeyFile string
}

// Run validates the options, and serves requests until the context ends.
func (s *Server) Run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for requests to the codec: %w", err)
	}
	return s.serve(ctx, listener)
}

func (s *Server) check() error {
	if s.Codec == nil {
		return errors.New("a codec server needs the directory of keys: set --temporal-payload-key-dir (" + keyDirVariable + ")")
	}
	if err := s.checkAccess(); err != nil {
		return err
	}
	for _, origin := range s.Origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme+"://"+u.Host != origin || u.Host == "" {
			return fmt.Errorf("--cors-origin %q: use scheme://host or scheme://host:port, as browsers send it", origin)
		}
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file need each other")
	}
	if s.CertFile == "" {
		return nil
	}
	_, err := s.certificate(nil)
	return err
}

// checkAccess returns an error if other hosts could connect without a token, unless AllowUnauthenticated is
// set.
func (s *Server) checkAccess() error {
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		return fmt.Errorf("--bind-address %q: use host:port: %w", s.Address, err)
	}
	ip := net.ParseIP(host)
	loopback := host == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case s.TokenFile != "" && s.AllowUnauthenticated:
		return errors.New("--token-file and --allow-unauthenticated exclude each other")
	case s.TokenFile != "":
		_, err := readToken(s.TokenFile)
		return err
	case !loopback && !s.AllowUnauthenticated:
		return fmt.Errorf("--bind-address %s would let every client read histories: set --token-file, or --allow-unauthenticated behind a proxy that authenticates", s.Address)
	}
	return nil
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: callTimeout, WriteTimeout: callTimeout, IdleTimeout: idleTimeout,
	}
	listener = netutil.LimitListener(listener, maxConnections)
	if s.CertFile != "" {
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: s.certificate, NextProtos: []string{"http/1.1"}})
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the codec: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		return fmt.Errorf("stop the codec server: %w", err)
	}
	return nil
}

func (s *Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.CertFile, s.KeyFile, err)
	}
	return &pair, nil
}

func (s *Server) handler() http.Handler {
	payloads := s.guard(http.MaxBytesHandler(converter.NewPayloadCodecHTTPHandler(s.Codec), maxBody))
	mux := http.NewServeMux()
	mux.Handle("/decode", payloads)
	if s.Codec.Encrypts() {
		mux.Handle("/encode", payloads)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	return mux
}

// guard rejects requests without the bearer token, if a token is configured. guard always rejects requests of
// web pages whose origin is not in Origins, because a web page in a browser can reach servers on the same
// machine.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin != "" {
			if !slices.Contains(s.Origins, origin) {
				http.Error(w, "this origin is not allowed, see --cors-origin", http.StatusForbidden)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Allow-Credentials", "true")
			w.Header().Set("Access-Control-Allow-Methods", http.MethodPost)
			w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Namespace")
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if s.TokenFile != "" {
			token, err := readToken(s.TokenFile)
			if err != nil {
				http.Error(w, "the server cannot read its token", http.StatusServiceUnavailable)
				return
			}
			if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), append([]byte("Bearer "), token...)) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "bearer token missing or wrong", http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func readToken(file string) ([]byte, error) {
	token, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the bearer token: %w", err)
	}
	if token = bytes.TrimSpace(token); len(token) == 0 {
		return nil, fmt.Errorf("%s contains no bearer token", file)
	}
	return token, nil
}
