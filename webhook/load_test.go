package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

// held registers a path whose requests wait for goOn.
func held(s *server, path string, began chan<- struct{}, goOn <-chan struct{}) {
	s.Register(path, podSize(), func(_ context.Context, buffers *requestBuffers) (int, error) {
		began <- struct{}{}
		<-goOn
		buffers.answer.WriteString("done")
		return http.StatusOK, nil
	})
}

func TestTooManyRequestsInFlightGet429(t *testing.T) {
	small, large := `{}`, `"`+strings.Repeat("a", 2*smallBody)+`"`
	heavy := "[" + strings.Repeat("1,", 2*lightWeight/int(podSize().perValue)) + "1]"
	for name, c := range map[string]struct {
		bounds      func(*bounds)
		body, other string
		says        string
	}{
		"requests":    {func(b *bounds) { b.requests = 1 }, small, small, "requests in flight exceed 1;"},
		"bytes":       {func(b *bounds) { b.light = 8 }, small, small, "bytes in flight exceed 8;"},
		"large bytes": {func(b *bounds) { b.reading = 3 * smallBody }, large, large, "bytes of large requests in flight exceed 196608;"},
		"heavy":       {func(b *bounds) { b.heavy = 3 * lightWeight }, heavy, heavy, "bytes of large requests in flight exceed 3145728;"},
	} {
		t.Run(name, func(t *testing.T) {
			began, goOn := make(chan struct{}, 1), make(chan struct{})
			s := newServed(t, func(s *server) {
				bounds := defaultBounds()
				bounds.wait = time.Millisecond
				c.bounds(&bounds)
				s.load = newLoad(bounds)
				held(s, "/held", began, goOn)
			})
			var first sync.WaitGroup
			first.Go(func() {
				status, _ := s.do(t, http.MethodPost, "/held", "application/json", strings.NewReader(c.body))
				assert.Equal(t, http.StatusOK, status)
			})
			<-began
			assert.Equal(t, 1.0, gaugeOf(t, s.inFlight))
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+"/held", strings.NewReader(c.other))
			require.NoError(t, err)
			request.Header.Set("Content-Type", "application/json")
			response, err := s.client.Do(request)
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			assert.Equal(t, http.StatusTooManyRequests, response.StatusCode)
			assert.Equal(t, "1", response.Header.Get("Retry-After"))
			assert.Contains(t, string(text), c.says)
			close(goOn)
			first.Wait()
			status, _ := s.do(t, http.MethodPost, "/held", "application/json", strings.NewReader(c.other))
			assert.Equal(t, http.StatusOK, status, "what was held is free again")
		})
	}
}

// Pods are small: they do not stand in one queue with what is large.
func TestLargeRequestsKeepNoPodWaiting(t *testing.T) {
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	s := newServed(t, func(s *server) {
		bounds := defaultBounds()
		bounds.wait, bounds.heavy, bounds.reading = time.Hour, 1, 1
		s.load = newLoad(bounds)
		held(s, "/held", began, goOn)
	})
	large := `"` + strings.Repeat("a", lightWeight) + `"`
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			status, _ := s.do(t, http.MethodPost, "/held", "application/json", strings.NewReader(large))
			assert.Equal(t, http.StatusOK, status)
		})
	}
	<-began
	status, _ := s.do(t, http.MethodPost, podPath, "application/json", bytes.NewReader(reviewOf(t, fixture.Pod())))
	assert.Equal(t, http.StatusOK, status)
	close(goOn)
	<-began
	<-began
	all.Wait()
}

func TestMoreValuesThanMemoryIsForAreRefused(t *testing.T) {
	s := newServed(t, nil)
	body := `{"x":[` + strings.Repeat("{},", int(podSize().values)+1) + `{}]}`
	status, answer := s.do(t, http.MethodPost, podPath, "application/json", strings.NewReader(body))
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
	assert.Contains(t, answer, "send at most 250000 values")
}

// hostile are the largest bodies that are read, by path.
func hostile(t *testing.T) map[string][][]byte {
	t.Helper()
	pod := string(reviewOf(t, fixture.Pod(fixture.Container("app"))))
	many := func(n int) []byte {
		return []byte(strings.Replace(pod, `"containers":[`, `"containers":[`+strings.Repeat("{},", n), 1))
	}
	long := []byte(strings.Replace(pod, `"labels":{`, `"labels":{"x":"`+strings.Repeat("a", int(podSize().bytes)-len(pod)-20)+`",`, 1))
	set := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","object":{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet",` +
		`"metadata":{"name":"x"},"spec":{"containers":[` + strings.Repeat("{},", int(setSize().values)-100) + `{}]}}}}`
	object := `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"x"},"spec":{"x":"` + strings.Repeat("a", 1<<20) + `"}}`
	conversion := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[` +
		strings.Repeat(object+",", 30) + object + `]}}`
	return map[string][][]byte{
		podPath:        {long, many(int(podSize().values) - 100), many((int(podSize().bytes) - len(pod)) / 3)},
		defaultingPath: {[]byte(set)},
		conversionPath: {[]byte(conversion)},
	}
}

// TestAFloodTakesBoundedMemoryAndHonestClientsAreAnswered has 200 connections send
// the largest bodies there are, all at once, under the memory limit of config/deploy.
func TestAFloodTakesBoundedMemoryAndHonestClientsAreAnswered(t *testing.T) {
	const connections, limit = 200, 850 << 20
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	s := newServed(t, func(s *server) {
		s.Register("/real"+defaultingPath, setSize(), reviews(reviewed(&defaulter{decoder: admission.NewDecoder(scheme)})))
		s.Register(conversionPath, conversionSize(), convert)
	})
	bodies := hostile(t)
	bodies["/real"+defaultingPath] = bodies[defaultingPath]
	delete(bodies, defaultingPath)
	var flood []func() int
	for path, each := range bodies {
		for _, body := range each {
			flood = append(flood, func() int { return s.send(t, path, body) })
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
	honest, slowest := 0, time.Duration(0)
	body := reviewOf(t, fixture.Pod(fixture.Container("app")))
	for running := true; running; {
		began := time.Now()
		status, answer := s.do(t, http.MethodPost, podPath, "application/json", bytes.NewReader(body))
		require.Equal(t, http.StatusOK, status, answer)
		require.Contains(t, answer, `"patchType":"JSONPatch"`)
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
	assert.NotZero(t, counted[http.StatusOK], "the bounds let some through")
	assert.Greater(t, honest, 5)
}

// used is the memory that the process has of the system.
func used() uint64 {
	samples := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// send has a connection of its own; it returns 0 where that was closed.
func (s *served) send(t *testing.T, path string, body []byte) int {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.clientTLS()}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+path, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// What decoding takes is estimated, and must not be underestimated by much.
func TestWeightsCoverWhatDecodingTakes(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	sizes := map[string]size{podPath: podSize(), defaultingPath: setSize(), conversionPath: conversionSize()}
	responders := map[string]responder{
		podPath:        reviews(handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side"))).answer),
		defaultingPath: reviews(reviewed(&defaulter{decoder: admission.NewDecoder(scheme)})),
		conversionPath: convert,
	}
	for path, bodies := range hostile(t) {
		for i, body := range bodies {
			if count(body) > sizes[path].values {
				continue
			}
			buffers := &requestBuffers{}
			buffers.body.Write(body)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, _ = responders[path](t.Context(), buffers)
			runtime.ReadMemStats(&after)
			// All that was ever allocated, of which much is garbage at once.
			took, weight := after.TotalAlloc-before.TotalAlloc, uint64(sizes[path].weight(body))
			t.Logf("%s %d: %s, %d MiB, took %d MiB, weighs %d MiB", path, i, summary(body), len(body)>>20, took>>20, weight>>20)
			assert.Less(t, took, 5*weight)
		}
	}
}

func summary(body []byte) string {
	if !json.Valid(body) {
		return "no JSON"
	}
	return fmt.Sprintf("%d values", count(body))
}
