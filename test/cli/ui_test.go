package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/cli/view"
)

// pages is a running process of outrigger ui.
type pages struct {
	t      *testing.T
	url    string
	client *http.Client
}

// startPages runs outrigger ui on a free port.
func startPages(t *testing.T, bind string, args ...string) *pages {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "outrigger"), append([]string{
		"ui", "--kubeconfig=" + stack.Kubeconfig, "--temporal-address=" + stack.TemporalAddress, "--temporal-tls=false", "--bind-address=" + bind + ":0",
		"--temporal-payload-key-dir=" + stack.keys,
	}, args...)...)
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), "an end without an error")
	})
	lines, serving := bufio.NewScanner(log), regexp.MustCompile(`serving pages.* address=\S*:(\d+)`)
	for lines.Scan() {
		if found := serving.FindStringSubmatch(lines.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return &pages{t: t, url: "http://127.0.0.1:" + found[1], client: http.DefaultClient}
		}
	}
	require.Fail(t, "outrigger ui does not serve pages", "%s", lines.Text())
	return nil
}

// get reads a page. If token is not empty, get sends token as a bearer token.
func (p *pages) get(path, token string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	require.NoError(p.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := p.client.Do(request)
	require.NoError(p.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(body)
}

// shows waits until a page contains all words.
func (p *pages) shows(path string, words ...string) {
	p.t.Helper()
	body := ""
	shown := assert.Eventually(p.t, func() bool {
		_, body = p.get(path, "")
		for _, word := range words {
			if !strings.Contains(body, word) {
				return false
			}
		}
		return true
	}, 3*time.Minute, 100*time.Millisecond)
	require.True(p.t, shown, "%s to show %q, not %s", path, words, body)
}

func TestSpec8_9_PagesShowTheWordsOfThePlugin(t *testing.T) {
	defer staged(t, "paged", `[{name: canary, upTo: 1, bake: 1h}, {upTo: 100%, approval: {}}]`)()
	p := startPages(t, "127.0.0.1")
	p.shows("/", `<a href="/sidecarsets/paged">paged</a>`, `<td class="good">Complete</td>`)
	setImage(t, "paged", "agent:v2")
	p.shows("/sidecarsets/paged", "Baking (step 1 of 2, ", "1 of 6 updated", "1 (canary)", "baking, ", "all pods, needs approval", "deployment/paged",
		"generation 2, which began ", `<a href="`+stack.TemporalUI+"/namespaces/default/workflows/sidecarset%2Fpaged")
	shows(t, "pause", "paged", "--reason=look <here>")
	p.shows("/sidecarsets/paged", "by admin: look &lt;here&gt;", "kubectl sidecarset resume paged")
	eventually(t, []string{"list", "-o", "json"}, `"Paused"`)
	var summaries view.Summaries
	require.NoError(t, json.Unmarshal([]byte(shows(t, "list", "-o", "json")), &summaries))
	require.NotEmpty(t, summaries)
	for _, one := range summaries {
		p.shows("/", ">"+one.Name+"</a>", one.Headline)
	}
	code, body := p.get("/sidecarsets/nobody", "")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, body, "there is no SidecarSet &#34;nobody&#34;")

	// If Temporal is unavailable, the page shows the state of the cluster.
	away := startPages(t, "127.0.0.1", "--temporal-address=127.0.0.1:1", "--temporal-ui-url=https://runs.example/", "--fleet")
	away.shows("/sidecarsets/paged", "1 of 6 updated", "connection refused", `<a href="https://runs.example/namespaces/default/workflows/sidecarset%2Fpaged`)
	code, body = away.get("/fleet", "")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "read the fleet: Temporal at 127.0.0.1:1")
	startPages(t, "127.0.0.1", "--fleet").shows("/fleet", "No rollout of the fleet is open.")
}

func TestSpec8_9_AnotherAddressThanLoopbackNeedsATokenWithRights(t *testing.T) {
	scenario(t, "guarded")
	defer kubectl(t, "", "delete", "sidecarset/guarded", "deployment/guarded")
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), "ui", "--bind-address=0.0.0.0:0").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "set --tls-cert-file and --tls-private-key-file")

	cert, key, trusted := certificate(t)
	p := startPages(t, "0.0.0.0", "--tls-cert-file="+cert, "--tls-private-key-file="+key)
	p.url = strings.Replace(p.url, "http:", "https:", 1)
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	token := func(account string) string {
		kubectl(t, "", "create", "serviceaccount", account)
		return strings.TrimSpace(kubectl(t, "", "create", "token", account))
	}
	nobody, reader, viewer := token("page-nobody"), token("page-reader"), token("page-viewer")
	kubectl(t, "", "create", "clusterrolebinding", "page-reader", "--clusterrole=outrigger-view", "--serviceaccount=default:page-reader")
	kubectl(t, "", "create", "clusterrolebinding", "page-viewer", "--clusterrole=view", "--serviceaccount=default:page-viewer")
	defer kubectl(t, "", "delete", "clusterrolebinding/page-reader", "clusterrolebinding/page-viewer", "serviceaccount/page-nobody", "serviceaccount/page-reader", "serviceaccount/page-viewer")
	require.Eventually(t, func() bool { // The role view is aggregated, and the authorizer observes bindings with a delay.
		code, _ := p.get("/sidecarsets/guarded", viewer)
		return code == http.StatusOK
	}, 3*time.Minute, 100*time.Millisecond)
	for _, one := range []struct {
		path, token, text string
		code              int
	}{
		{"/", "", "a bearer token is missing", http.StatusUnauthorized},
		{"/page.css", "", "a bearer token is missing", http.StatusUnauthorized},
		{"/", "wrong", "does not accept this bearer token", http.StatusUnauthorized},
		{"/", nobody, "user system:serviceaccount:default:page-nobody may not list sidecarsets", http.StatusForbidden},
		{"/", reader, "guarded", http.StatusOK},
		{"/sidecarsets/guarded", reader, "user system:serviceaccount:default:page-reader may not list pods", http.StatusForbidden},
		{"/sidecarsets/guarded", viewer, "6 of 6 updated", http.StatusOK},
	} {
		code, body := p.get(one.path, one.token)
		assert.Equal(t, one.code, code, one.path)
		assert.Contains(t, body, one.text, one.path)
		assert.NotContains(t, body, reader)
	}
}

// certificate writes a certificate for 127.0.0.1 and its private key, and returns the paths and a pool that
// trusts the certificate.
func certificate(t *testing.T) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	cert, key = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	trusted = x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	return cert, key, trusted
}
