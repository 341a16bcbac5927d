package integration

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/observer"
)

// receiver receives traces by OTLP over HTTP and stores the spans.
type receiver struct {
	mu    sync.Mutex
	spans []exported
}

type exported struct {
	service string
	*otlp.Span
}

// startReceiver starts a receiver. Roles that start afterwards export traces to the receiver.
func startReceiver() (*receiver, func(), error) {
	r := &receiver{}
	server := httptest.NewServer(r)
	for key, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "200",
	} {
		if err := os.Setenv(key, value); err != nil {
			server.Close()
			return nil, nil, err
		}
	}
	return r, server.Close, nil
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if err := r.take(request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (r *receiver) take(request *http.Request) error {
	var body io.Reader = request.Body
	if request.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = unzipped
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var export collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(content, &export); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range export.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				one := exported{Span: span}
				for _, attribute := range of.Resource.Attributes {
					if attribute.Key == "service.name" {
						one.service = attribute.Value.GetStringValue()
					}
				}
				r.spans = append(r.spans, one)
			}
		}
	}
	return nil
}

// path returns the service and the name of each span from the root to span.
func (r *receiver) path(span exported) []string {
	path := []string{span.service + " " + span.Name}
	for _, parent := range r.spans {
		if string(parent.SpanId) == string(span.ParentSpanId) && string(parent.TraceId) == string(span.TraceId) {
			return append(r.path(parent), path...)
		}
	}
	return path
}

func (e exported) attribute(key string) string {
	for _, attribute := range e.Attributes {
		if attribute.Key == key {
			return attribute.Value.GetStringValue()
		}
	}
	return ""
}

// writes returns, for each pod of a namespace, the path of spans to the write of the pod.
func (r *receiver) writes(namespace string) map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string][]string{}
	for _, span := range r.spans {
		if span.Name == "PatchPod" && span.attribute("k8s.namespace.name") == namespace && span.attribute("outrigger.change") == "upgrade" {
			found[span.attribute("k8s.pod.name")] = r.path(span)
		}
	}
	return found
}

func TestATraceGoesFromTheEditToEachPod(t *testing.T) {
	s := newScenario(t, 4, nil)
	s.awaitSet("counts of the injected pods", counts(4))
	// The test waits for the end of the run, because an open run adds the spans of the edit to the trace of the
	// earlier generation.
	s.awaitPhase(protocol.PhaseComplete)
	s.upgradeTo("side:v2")
	s.await(observer.Converged(4))
	path := []string{
		"outrigger-webhook AdmitSidecarSet",
		"outrigger-operator StartRollout",
		"outrigger-worker RunWorkflow:Rollout",
		"outrigger-worker StartActivity:UpgradeBatch",
		"outrigger-worker RunActivity:UpgradeBatch",
		"outrigger-worker PatchPod",
	}
	var writes map[string][]string
	s.poll("a whole trace to each pod", func() (bool, error) {
		writes = stack.traces.writes(s.name)
		whole := 0
		for _, found := range writes {
			if len(found) == len(path) {
				whole++
			}
		}
		return whole == 4, nil
	})
	for _, pod := range s.pods() {
		assert.Equal(t, path, writes[pod.Name], pod.Name)
	}
	require.Len(t, writes, 4)
}
