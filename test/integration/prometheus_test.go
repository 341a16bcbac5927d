package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/cluster/process"
)

// target is an exporter with the metric errors for each SidecarSet. A real Prometheus scrapes the target.
type target struct {
	prometheus string
	mu         sync.Mutex
	values     map[string]string
}

// away is the value of a target that does not respond to scrapes. down and hang are answers of a Prometheus
// that is unavailable.
const (
	away = "away"
	down = "down"
	hang = "hang"
)

// startPrometheus starts a target, and a Prometheus that scrapes the target.
func startPrometheus(t *testing.T) *target {
	t.Helper()
	scraped := &target{values: map[string]string{}}
	exporter := httptest.NewServer(scraped)
	t.Cleanup(exporter.Close)
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs: [{job_name: sidecars, static_configs: [{targets: [%q]}]}]\n", exporter.Listener.Addr())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	program, err := filepath.Abs(filepath.Join(bin, "prometheus"))
	require.NoError(t, err)
	require.FileExists(t, program, "run tools/build.sh prometheus")
	scraped.prometheus = "http://" + address
	name := "prometheus-" + scenarioName(t)
	require.NoError(t, stack.Start(t.Context(), process.Spec{
		Name: name, Path: program,
		Args:  []string{"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address},
		Ready: scraped.ready,
	}))
	t.Cleanup(func() { require.NoError(t, stack.Stop(name)) })
	return scraped
}

func (s *target) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.prometheus+"/-/ready", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: the answer is %s", request.URL, response.Status)
	}
	return nil
}

func (s *target) set(sidecarSet, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[sidecarSet] = value
}

func (s *target) forget(sidecarSet string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, sidecarSet)
}

func (s *target) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for sidecarSet, value := range s.values {
		if value == away {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(&text, "errors{sidecarset=%q} %s\n", sidecarSet, value)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = io.WriteString(w, text.String())
}

// prometheus is the Prometheus of one gate, behind a proxy that checks the credentials. If the answer is a
// value, the proxy sets this value in the target, and forwards the request after the next scrape.
type prometheus struct {
	*httptest.Server
	target   *target
	scenario *scenario
	samples  int
	// answers contains the answers to the requests of each sample, separated by spaces. The proxy gives an
	// answer down or hang once, unless this answer is the last answer to the sample. Later samples use the last
	// element of answers.
	answers []string
	mu      sync.Mutex
	// given contains the number of answers to each sample that were down or hang.
	given map[int]int
	// began receives a value for each request that hangs.
	began chan struct{}
}

func (s *target) answer(t *testing.T, answers ...string) *prometheus {
	p := &prometheus{target: s, answers: answers, given: map[int]int{}, began: make(chan struct{}, 100)}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() { s.forget(p.scenario.name) })
	t.Cleanup(p.Close)
	t.Cleanup(p.CloseClientConnections)
	return p
}

// next returns the answer to the sample for which the run waits. A request of a measurement that has ended
// may still wait, so the number of requests does not identify the sample.
func (p *prometheus) next(ctx context.Context) (string, error) {
	answer, err := stack.temporal.QueryWorkflow(ctx, p.scenario.workflow(), "", protocol.StatusQuery)
	if err != nil {
		return "", err
	}
	var status protocol.RolloutStatus
	if err := answer.Get(&status); err != nil || status.Stage == nil {
		return "", err
	}
	sample := status.Stage.GateAttempt * p.samples
	for _, state := range status.Stage.Gates {
		sample += state.Samples
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Fields(p.answers[min(sample, len(p.answers)-1)])
	next := all[min(p.given[sample], len(all)-1)]
	if next == down || next == hang {
		p.given[sample]++
	}
	return next, nil
}

func (p *prometheus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer s3cret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	form, _ := io.ReadAll(r.Body) // The server detects the end of the connection only after the body is read.
	switch answer, err := p.next(r.Context()); {
	case err != nil, answer == down:
		w.WriteHeader(http.StatusInternalServerError)
	case answer == hang:
		p.began <- struct{}{}
		<-r.Context().Done()
	default:
		p.target.set(p.scenario.name, answer)
		p.forward(w, r, string(form), answer)
	}
}

// forward waits until the answer of Prometheus contains value, and forwards this answer. If the target is
// away, forward waits until the answer contains no data.
func (p *prometheus) forward(w http.ResponseWriter, r *http.Request, form, value string) {
	err := wait.PollUntilContextCancel(r.Context(), 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		body, err := p.query(ctx, r, form)
		if err != nil || valueIn(body) != value {
			return false, err
		}
		w.Header().Set("Content-Type", "application/json")
		_, err = w.Write(body)
		return true, err
	})
	if err != nil && r.Context().Err() == nil {
		w.WriteHeader(http.StatusBadGateway)
	}
}

func (p *prometheus) query(ctx context.Context, r *http.Request, form string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, p.target.prometheus+r.URL.Path, strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

// valueIn returns the value of the only series in an answer of Prometheus. If the answer contains no series,
// valueIn returns away. If the answer is invalid, valueIn returns an empty string.
func valueIn(body []byte) string {
	var answer struct {
		Status string `json:"status"`
		Data   struct {
			Result []struct {
				Value []any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Status != "success" {
		return ""
	}
	if len(answer.Data.Result) == 0 {
		return away
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}
