package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/webhook/fallback"
	"github.com/outrigger/outrigger/webhook/pods"
	"github.com/outrigger/outrigger/webhook/registration"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
	"github.com/outrigger/outrigger/webhook/sidecarsets"
)

// podReview returns a request of the API server for a new pod.
func podReview(t *testing.T) []byte {
	t.Helper()
	raw, err := json.Marshal(fixture.Pod(fixture.Container("app")))
	require.NoError(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta(), Request: &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "default", Object: apiruntime.RawExtension{Raw: raw},
	}})
	require.NoError(t, err)
	return body
}

// routes returns the sizes and the responders by path. One SidecarSet matches pods.
func routes(t *testing.T) (map[string]server.Size, map[string]server.Responder) {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	cached := fallback.Reader{Cached: fake.NewClientBuilder().WithScheme(scheme).Build(), Stale: func() error { return nil }}
	handler := pods.New(pods.Options{
		Log: logr.Discard(), Sets: cached, Namespaces: cached, Revisions: fallback.Revisions{Reader: cached, SystemNamespace: "system"}, Registerer: prometheus.NewRegistry(),
	})
	handler.SetEventHandler().OnAdd(fixture.SidecarSet("s", fixture.Sidecar("side")), true)
	return map[string]server.Size{
			registration.PodPath: pods.Size(), registration.DefaultingPath: sidecarsets.Size(), registration.ConversionPath: sidecarsets.ConversionSize(),
		}, map[string]server.Responder{
			registration.PodPath:        review.Answer(handler.Answer),
			registration.DefaultingPath: review.Answer(review.Handle(&sidecarsets.Defaulter{Decoder: admission.NewDecoder(scheme)})),
			registration.ConversionPath: sidecarsets.Convert,
		}
}

// hostile returns the largest bodies that the server reads, by path.
func hostile(t *testing.T) map[string][][]byte {
	t.Helper()
	pod := string(podReview(t))
	many := func(n int) []byte {
		return []byte(strings.Replace(pod, `"containers":[`, `"containers":[`+strings.Repeat("{},", n), 1))
	}
	long := []byte(strings.Replace(pod, `"labels":{`, `"labels":{"x":"`+strings.Repeat("a", int(pods.Size().Bytes)-len(pod)-20)+`",`, 1))
	set := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","object":{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet",` +
		`"metadata":{"name":"x"},"spec":{"containers":[` + strings.Repeat("{},", int(sidecarsets.Size().Values)-100) + `{}]}}}}`
	object := `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"x"},"spec":{"x":"` + strings.Repeat("a", 1<<20) + `"}}`
	conversion := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[` +
		strings.Repeat(object+",", 30) + object + `]}}`
	return map[string][][]byte{
		registration.PodPath:        {long, many(int(pods.Size().Values) - 100), many((int(pods.Size().Bytes) - len(pod)) / 3)},
		registration.DefaultingPath: {[]byte(set)},
		registration.ConversionPath: {[]byte(conversion)},
	}
}

// 200 connections send the largest bodies concurrently, under the memory limit of
// config/deploy.
func TestAFloodTakesLimitedMemoryAndValidClientsGetResponses(t *testing.T) {
	const connections, limit = 200, 850 << 20
	sizes, responders := routes(t)
	s := server.NewServed(t, func(s *server.Server) {
		for path, respond := range responders {
			s.Register(path, sizes[path], respond)
		}
	})
	var flood []func() int
	for path, each := range hostile(t) {
		for _, body := range each {
			flood = append(flood, func() int {
				client := s.NewClient()
				defer client.CloseIdleConnections()
				return s.Post(t, client, path, body, io.Discard)
			})
		}
	}
	debug.SetMemoryLimit(limit)
	t.Cleanup(func() { debug.SetMemoryLimit(-1) })
	runtime.GC()
	debug.FreeOSMemory()
	before := used()
	statuses, peak := make([]int, connections), before
	var clients sync.WaitGroup
	for i := range connections {
		clients.Go(func() { statuses[i] = flood[i%len(flood)]() })
	}
	ended := make(chan struct{})
	go func() {
		clients.Wait()
		close(ended)
	}()
	client := s.NewClient()
	defer client.CloseIdleConnections()
	honest, slowest := 0, time.Duration(0)
	body := podReview(t)
	for running := true; running; {
		began := time.Now()
		var answer bytes.Buffer
		status := s.Post(t, client, registration.PodPath, body, &answer)
		require.Equal(t, http.StatusOK, status, answer.String())
		require.Contains(t, answer.String(), `"patchType":"JSONPatch"`)
		honest, slowest, peak = honest+1, max(slowest, time.Since(began)), max(peak, used())
		select {
		case <-ended:
			running = false
		default:
		}
	}
	counted := map[int]int{}
	for _, status := range statuses {
		counted[status]++
	}
	t.Logf("%d MiB before, %d MiB at the peak; the flood got %v; %d honest requests were answered, the slowest in %s",
		before>>20, peak>>20, counted, honest, slowest)
	assert.Less(t, peak, uint64(limit))
	assert.NotZero(t, counted[http.StatusOK], "the limits admit some requests")
	assert.Greater(t, honest, 5)
}

// used returns the memory that the process has obtained from the operating system, in bytes.
func used() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// The estimated memory for decoding must not be far below the allocated memory.
func TestWeightsCoverTheMemoryOfDecoding(t *testing.T) {
	sizes, responders := routes(t)
	for path, bodies := range hostile(t) {
		for i, body := range bodies {
			if !sizes[path].Holds(body) {
				continue
			}
			buffers := &server.Buffers{}
			buffers.Body.Write(body)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, _ = responders[path](t.Context(), buffers)
			runtime.ReadMemStats(&after)
			// TotalAlloc also counts memory that is no longer in use.
			took, weight := after.TotalAlloc-before.TotalAlloc, uint64(sizes[path].Weight(body))
			t.Logf("%s %d: %s, %d MiB, took %d MiB, weighs %d MiB", path, i, summary(body), len(body)>>20, took>>20, weight>>20)
			assert.Less(t, took, 5*weight)
		}
	}
}

func summary(body []byte) string {
	if !json.Valid(body) {
		return "no JSON"
	}
	return fmt.Sprintf("%d values", bytes.Count(body, []byte{','}))
}
