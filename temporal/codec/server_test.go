package codec

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"
)

// ask sends a request to a server, as the UI and the CLI do.
func ask(s *Server, method, path string, body []byte, headers map[string]string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(context.Background(), method, path, bytes.NewReader(body))
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	s.handler().ServeHTTP(answer, request)
	return answer
}

func newServer(t *testing.T) (*Server, []byte) {
	dir := t.TempDir()
	writeKey(t, dir, "a")
	c, _, _ := opened(t, Options{KeyDir: dir, KeyID: "a"})
	body, err := protojson.Marshal(&common.Payloads{Payloads: []*common.Payload{encode(t, c, "words")}})
	require.NoError(t, err)
	return &Server{Codec: c, Address: "127.0.0.1:0"}, body
}

func decoded(t *testing.T, answer *httptest.ResponseRecorder) (value string) {
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	var payloads common.Payloads
	require.NoError(t, protojson.Unmarshal(answer.Body.Bytes(), &payloads))
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(payloads.Payloads[0], &value))
	return value
}

func TestServerDecodesAndEncodes(t *testing.T) {
	s, body := newServer(t)
	assert.Equal(t, "words", decoded(t, ask(s, "POST", "/decode", body, nil)))
	answer := ask(s, "POST", "/encode", body, nil)
	assert.Equal(t, http.StatusOK, answer.Code)
	assert.Equal(t, http.StatusNotFound, ask(s, "GET", "/decode", nil, nil).Code)
	assert.Equal(t, http.StatusNotFound, ask(s, "POST", "/other/decode", body, nil).Code)
	assert.Equal(t, http.StatusOK, ask(s, "GET", "/healthz", nil, nil).Code)
	assert.Equal(t, http.StatusBadRequest, ask(s, "POST", "/decode", bytes.Repeat([]byte("a"), maxBody+1), nil).Code)

	decrypts, _, _ := opened(t, Options{KeyDir: s.Codec.options.KeyDir})
	s.Codec = decrypts
	assert.Equal(t, "words", decoded(t, ask(s, "POST", "/decode", body, nil)))
	assert.Equal(t, http.StatusNotFound, ask(s, "POST", "/encode", body, nil).Code, "no key encrypts")
}

func TestServerRequiresTheToken(t *testing.T) {
	s, body := newServer(t)
	s.TokenFile = filepath.Join(t.TempDir(), "token")
	write(t, s.TokenFile, "first\n")
	for header, want := range map[string]int{"": 401, "Bearer": 401, "Bearer ": 401, "first": 401, "Bearer other": 401, "Bearer first": 200} {
		assert.Equal(t, want, ask(s, "POST", "/decode", body, map[string]string{"Authorization": header}).Code, header)
	}
	write(t, s.TokenFile, "second")
	assert.Equal(t, 401, ask(s, "POST", "/decode", body, map[string]string{"Authorization": "Bearer first"}).Code)
	assert.Equal(t, 200, ask(s, "POST", "/decode", body, map[string]string{"Authorization": "Bearer second"}).Code)
	write(t, s.TokenFile, "")
	assert.Equal(t, 503, ask(s, "POST", "/decode", body, map[string]string{"Authorization": "Bearer "}).Code, "an empty file opens nothing")
	assert.Equal(t, 200, ask(s, "GET", "/healthz", nil, nil).Code)
}

func TestServerAnswersPagesOfNamedOriginsAlone(t *testing.T) {
	s, body := newServer(t)
	s.Origins = []string{"https://temporal.example"}
	of := func(origin string) map[string]string { return map[string]string{"Origin": origin} }
	answer := ask(s, "POST", "/decode", body, of("https://temporal.example"))
	assert.Equal(t, "words", decoded(t, answer))
	assert.Equal(t, "https://temporal.example", answer.Header().Get("Access-Control-Allow-Origin"))
	for _, origin := range []string{"null", "https://evil.example", "http://temporal.example", "https://temporal.example.evil.example"} {
		answer := ask(s, "POST", "/decode", body, of(origin))
		assert.Equal(t, 403, answer.Code, origin)
		assert.Empty(t, answer.Header().Get("Access-Control-Allow-Origin"))
	}
	// Browsers send a preflight request without the token.
	s.TokenFile = "/absent"
	answer = ask(s, "OPTIONS", "/decode", nil, of("https://temporal.example"))
	assert.Equal(t, 204, answer.Code)
	assert.Contains(t, answer.Header().Get("Access-Control-Allow-Headers"), "X-Namespace")
	assert.Equal(t, 403, ask(s, "OPTIONS", "/decode", nil, of("https://evil.example")).Code)
}

func TestServerIsNotOpenByMistake(t *testing.T) {
	s, _ := newServer(t)
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "t")
	for _, test := range []struct {
		name   string
		change func(*Server)
		want   string
	}{
		{"all interfaces", func(s *Server) { s.Address = ":8088" }, "--bind-address :8088 would let every client read histories: set --token-file, or --allow-unauthenticated"},
		{"another host", func(s *Server) { s.Address = "10.0.0.1:8088" }, "would let every client"},
		{"no port", func(s *Server) { s.Address = "127.0.0.1" }, "use host:port"},
		{"no keys", func(s *Server) { s.Codec = nil }, "--temporal-payload-key-dir"},
		{"both", func(s *Server) { s.TokenFile, s.AllowUnauthenticated = token, true }, "exclude each other"},
		{"absent token", func(s *Server) { s.TokenFile = "/absent" }, "read the bearer token"},
		{"any origin", func(s *Server) { s.Origins = []string{"*"} }, `--cors-origin "*": use scheme://host`},
		{"a path", func(s *Server) { s.Origins = []string{"https://a.example/"} }, "--cors-origin"},
		{"half a pair", func(s *Server) { s.CertFile = "c" }, "need each other"},
		{"absent pair", func(s *Server) { s.CertFile, s.KeyFile = "/absent", "/absent" }, "certificate /absent with key /absent"},
	} {
		changed := *s
		test.change(&changed)
		require.ErrorContains(t, changed.Run(t.Context()), test.want, test.name)
	}
	for _, change := range []func(*Server){
		func(s *Server) { s.Address, s.TokenFile = ":8088", token },
		func(s *Server) { s.Address, s.AllowUnauthenticated = "0.0.0.0:8088", true },
		func(s *Server) { s.Address = "localhost:8088" },
		func(s *Server) { s.Address, s.Origins = "[::1]:8088", []string{"http://localhost:8080"} },
	} {
		changed := *s
		change(&changed)
		require.NoError(t, changed.check())
	}
}

// certify writes a certificate for 127.0.0.1 and the key of the certificate into the files of s, and returns
// the certificate.
func certify(t *testing.T, s *Server) *x509.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: serial, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write(t, s.CertFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made})))
	write(t, s.KeyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	parsed, err := x509.ParseCertificate(made)
	require.NoError(t, err)
	return parsed
}

func TestServerSpeaksTLSWithTheCertificateAsItIsAndStops(t *testing.T) {
	s, body := newServer(t)
	s.CertFile, s.KeyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	certificate := certify(t, s)
	require.NoError(t, s.check())
	go func() { ended <- s.serve(ctx, listener) }()
	for range 2 {
		pool := x509.NewCertPool()
		pool.AddCert(certificate)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		answer, err := client.Post("https://"+listener.Addr().String()+"/decode", "application/json", strings.NewReader(string(body)))
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, http.StatusOK, answer.StatusCode, string(text))
		certificate = certify(t, s)
	}
	stop()
	require.NoError(t, <-ended)
}
