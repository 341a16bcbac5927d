package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

// wire sends patches of pods to the API server of a testCluster, through client-go with its rate
// limiter and retries, over HTTP.
type wire struct {
	cluster *testCluster
	mu      sync.Mutex
	// accepted are the names of the pods whose patch was accepted.
	accepted []string
	// before may respond to the n-th patch. If before returns false, the patch is forwarded to the API
	// server.
	before func(n int, w http.ResponseWriter) (answered bool)
	n      int
}

// overTheWire configures the cluster to patch pods through client-go over HTTP.
func (c *testCluster) overTheWire(limiter flowcontrol.RateLimiter, before func(n int, w http.ResponseWriter) bool) *wire {
	c.t.Helper()
	way := &wire{cluster: c, before: before}
	server := httptest.NewServer(way)
	c.t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, RateLimiter: limiter}
	config.Wrap(kube.NewWriteGate)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	pods, err := client.New(config, client.Options{Scheme: c.Live.(client.Client).Scheme(), Mapper: mapper})
	require.NoError(c.t, err)
	c.Writer = podWriter{c.Writer, pods}
	return way
}

var noLimit = flowcontrol.NewFakeAlwaysRateLimiter()

// fullLimiter accepts one request, and blocks the other requests until released is closed.
type fullLimiter struct {
	flowcontrol.RateLimiter
	passed   atomic.Bool
	released chan struct{}
}

func (l *fullLimiter) Wait(ctx context.Context) error {
	if !l.passed.Swap(true) {
		return nil
	}
	select {
	case <-l.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// podWriter sends patches of pods through a separate writer.
type podWriter struct {
	client.Writer
	pods client.Writer
}

func (w podWriter) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	return w.pods.Patch(ctx, o, patch, options...)
}

// gatedClient is a fake client whose patches pass the write gate.
type gatedClient struct{ client.Client }

func (c gatedClient) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	return throughTheGate(ctx, func() error { return c.Client.Patch(ctx, o, patch, options...) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func throughTheGate(ctx context.Context, send func() error) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, "/", http.NoBody)
	if err != nil {
		return err
	}
	var answer error
	response, err := kube.NewWriteGate(roundTripper(func(*http.Request) (*http.Response, error) {
		answer = send()
		response := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		if status := apierrors.APIStatus(nil); errors.As(answer, &status) {
			response.StatusCode = int(status.Status().Code)
		} else if answer != nil {
			return nil, answer
		}
		return response, nil
	})).RoundTrip(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	return answer
}

func (p *wire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		// The body is incomplete if the client sends the headers and then cancels the write. An API server
		// ignores such a request.
		return
	}
	p.mu.Lock()
	p.n++
	n := p.n
	p.mu.Unlock()
	if p.before != nil && p.before(n, w) {
		return
	}
	// The path has the form /api/v1/namespaces/d/pods/a.
	parts := strings.Split(r.URL.Path, "/")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: parts[4], Name: parts[6]}}
	w.Header().Set("Content-Type", "application/json")
	err = p.cluster.Live.(client.Client).Patch(r.Context(), pod, client.RawPatch(types.StrategicMergePatchType, body))
	if status := apierrors.APIStatus(nil); err != nil && assert.ErrorAs(p.cluster.t, err, &status) {
		w.WriteHeader(int(status.Status().Code))
		assert.NoError(p.cluster.t, json.NewEncoder(w).Encode(status.Status()))
		return
	}
	p.mu.Lock()
	p.accepted = append(p.accepted, pod.Name)
	p.mu.Unlock()
	assert.NoError(p.cluster.t, json.NewEncoder(w).Encode(&metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: pod.ObjectMeta,
	}))
}

func (p *wire) acceptedPods() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.accepted...)
}

func tooManyRequests(w http.ResponseWriter) bool {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	return true
}

// paused pauses the SidecarSet and advances the clock by maxAge, so that every later write observes the
// pause.
func (c *testCluster) paused(set *v1alpha1.SidecarSet) {
	c.edit(set, func() { set.Spec.UpdateStrategy.Paused = true })
	c.clock.Step(maxAge)
}

func (c *testCluster) upgradeBatch(t testing.TB, ctx func(context.Context) context.Context, names ...string) (protocol.UpgradeBatchResult, error) {
	t.Helper()
	b := c.newUpgradeBatch(protocol.UpgradeBatchInput{SidecarSet: webSetReference, Generation: 2, Pods: selectedPods(names...)}, "one")
	b.deadline = answeredDeadline(c.clock)
	err := inActivity(t, nil, func(activity context.Context) error { return b.run(ctx(activity), 1) })
	return b.result(), err
}

func unchanged(ctx context.Context) context.Context { return ctx }

func TestSpec7_1_APauseIsKeptByAWriteThatIsTriedAgain(t *testing.T) {
	set := webSet(1)
	cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a"))
	wire := cluster.overTheWire(noLimit, func(n int, w http.ResponseWriter) bool {
		if n > 1 {
			return false
		}
		cluster.paused(set)
		return tooManyRequests(w)
	})
	result, err := cluster.upgradeBatch(t, unchanged, "a")
	require.NoError(t, err)
	assert.Empty(t, wire.acceptedPods())
	assert.Equal(t, protocol.UpgradeBatchResult{Skipped: 1, Stopped: "paused"}, result)
}

func TestSpec7_1_APauseIsKeptByWritesThatWaitForTheRateLimiter(t *testing.T) {
	set := webSet(3)
	cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a"), webPod("b"), webPod("c"))
	cluster.Writers = 3
	limiter := &fullLimiter{RateLimiter: noLimit, released: make(chan struct{})}
	wire := cluster.overTheWire(limiter, func(int, http.ResponseWriter) bool {
		cluster.paused(set)
		close(limiter.released)
		return false
	})
	result, err := cluster.upgradeBatch(t, unchanged, "a", "b", "c")
	require.NoError(t, err)
	assert.Len(t, wire.acceptedPods(), 1)
	assert.Equal(t, wire.acceptedPods(), writtenNames(result.Written))
	assert.Equal(t, 2, result.Skipped)
	assert.Equal(t, "paused", result.Stopped)
}

func TestAWriteThatIsTriedAgainNeedsTheLead(t *testing.T) {
	for name, c := range map[string]struct {
		set *v1alpha1.SidecarSet
		pod *corev1.Pod
		run func(*testCluster) error
	}{
		"upgrade": {webSet(1), webPod("a"), func(c *testCluster) error {
			_, err := c.upgradeBatch(t, unchanged, "a")
			return err
		}},
		"reset": {hotSet(), hotPod("a"), func(c *testCluster) error {
			c.Events = events.NewFakeRecorder(1)
			return inActivity(t, nil, func(ctx context.Context) error {
				_, err := c.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference, Pods: []protocol.PodReference{refTo("a")}}).resetAll(ctx, webSetReference)
				return err
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, c.set, c.pod)
			var lost atomic.Bool
			wire := cluster.overTheWire(noLimit, func(n int, w http.ResponseWriter) bool {
				lost.Store(true)
				return n == 1 && tooManyRequests(w)
			})
			cluster.Cache = cacheOfSets{cluster.Cache, cluster.Live}
			cluster.Limit = NewClusterLimit(2, 8, func() bool { return !lost.Load() }, cluster.clock, cluster.Changes, cluster.Metrics)
			cluster.Limit.begin(t.Context(), nil)
			require.ErrorIs(t, c.run(cluster), errNotLeading)
			assert.Empty(t, wire.acceptedPods())
		})
	}
}

// The API server may execute a write and then respond with an error.
func TestAWriteThatIsCalledOffAfterAnErrorOfTheServerIsPerhapsWritten(t *testing.T) {
	set := webSet(1)
	cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a"))
	cluster.overTheWire(noLimit, func(_ int, w http.ResponseWriter) bool {
		cluster.paused(set)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusGatewayTimeout)
		return true
	})
	result, err := cluster.upgradeBatch(t, unchanged, "a")
	require.NoError(t, err)
	assert.Equal(t, []protocol.WrittenPod{{PodReference: refTo("a")}}, result.Written)
	assert.Equal(t, "paused", result.Stopped)
}

// The content of the SidecarSet has changed, so the worker must compute the patch again.
func TestAWriteThatIsTriedAgainHasTheContentOfTheSetByThen(t *testing.T) {
	set := webSet(1)
	cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a"))
	wire := cluster.overTheWire(noLimit, func(n int, w http.ResponseWriter) bool {
		if n > 1 {
			return false
		}
		cluster.edit(set, func() {
			set.Spec.Containers[0].Image = "side:v3"
			fixture.Hashed(set)
		})
		cluster.clock.Step(maxAge)
		return tooManyRequests(w)
	})
	result, err := cluster.upgradeBatch(t, unchanged, "a")
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, wire.acceptedPods())
	assert.Equal(t, []string{"a"}, writtenNames(result.Written))
	pod, err := readPod(t.Context(), cluster.Live, refTo("a"))
	require.NoError(t, err)
	assert.Contains(t, pod.Annotations[v1alpha1.HashAnnotation], set.Annotations[v1alpha1.HashAnnotation])
	assert.Equal(t, "side:v3", pod.Spec.Containers[0].Image)
}

// A pause does not stop a hot upgrade in progress.
func TestSpec7_1_AResetContinuesWhileTheSetIsPaused(t *testing.T) {
	set := hotSet()
	cluster := newTestCluster(t, interceptor.Funcs{}, set, hotPod("a"))
	cluster.Events = events.NewFakeRecorder(1)
	wire := cluster.overTheWire(noLimit, func(n int, w http.ResponseWriter) bool {
		if n > 1 {
			return false
		}
		cluster.paused(set)
		return tooManyRequests(w)
	})
	err := inActivity(t, nil, func(ctx context.Context) error {
		result, err := cluster.resetBatchOf(protocol.ResetBatchInput{SidecarSet: webSetReference, Pods: []protocol.PodReference{refTo("a")}}).resetAll(ctx, webSetReference)
		assert.Equal(t, protocol.ResetBatchResult{Reset: 1}, result)
		return err
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, wire.acceptedPods())
}

// A batch may end during the wait for the Lease. An empty result of such a batch would hide the writes of
// earlier attempts.
func TestAnAttemptThatEndsWhileItAcquiresTheLeaseReturnsNoEmptyResult(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a", upgraded))
	_, err := acquire(t.Context(), leaseOf(cluster.Activities, "two"))
	require.NoError(t, err)
	for attempt, want := range map[int32]bool{1: false, 2: true} {
		b := cluster.newUpgradeBatch(protocol.UpgradeBatchInput{SidecarSet: webSetReference, Generation: 2, Pods: selectedPods("a")}, "one")
		b.deadline = answeredDeadline(cluster.clock)
		err := inActivity(t, nil, func(ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(temporal.NewCanceledError())
			return b.run(ctx, attempt)
		})
		assert.Equal(t, want, err != nil, "attempt %d: %v", attempt, err)
	}
}

// A pause by signal or update cancels the batch. Requests in flight complete and are counted, and the worker
// sends no further requests.
func TestSpec7_1_ACancelledBatchSendsNothingMore(t *testing.T) {
	var pods []*corev1.Pod
	var names []string
	for _, letter := range "abcdefghijklmnopqrst" {
		for _, digit := range "0123456789" {
			names = append(names, string(letter)+string(digit))
			pods = append(pods, webPod(string(letter)+string(digit)))
		}
	}
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(len(pods)), pods...)
	cluster.Writers = 8
	const first = 50
	var cancel context.CancelCauseFunc
	arrived, cancelled := make(chan struct{}, len(pods)), make(chan struct{})
	wire := cluster.overTheWire(noLimit, func(n int, _ http.ResponseWriter) bool {
		if n > first {
			arrived <- struct{}{}
			<-cancelled
		}
		return false
	})
	go func() {
		for range cluster.Writers {
			<-arrived
		}
		cancel(temporal.NewCanceledError())
		close(cancelled)
	}()
	result, err := cluster.upgradeBatch(t, func(ctx context.Context) context.Context {
		ctx, cancel = context.WithCancelCause(ctx)
		return ctx
	}, names...)
	require.NoError(t, err)
	assert.Len(t, wire.acceptedPods(), first+cluster.Writers)
	assert.ElementsMatch(t, wire.acceptedPods(), writtenNames(result.Written))
	assert.Equal(t, len(pods)-first-cluster.Writers, result.Skipped)
}

// BenchmarkABatchOverTheWire writes 500 pods, 32 at a time, to a server that responds immediately.
func BenchmarkABatchOverTheWire(b *testing.B) {
	const pods = 500
	for b.Loop() {
		b.StopTimer()
		var all []*corev1.Pod
		var names []string
		for i := range pods {
			names = append(names, fmt.Sprint("p", i))
			all = append(all, webPod(names[i]))
		}
		cluster := newTestCluster(b, interceptor.Funcs{}, webSet(pods), all...)
		cluster.Writers = 32
		cluster.overTheWire(noLimit, func(n int, w http.ResponseWriter) bool {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"%d"}}`, 1000+n)
			return true
		})
		b.StartTimer()
		result, err := cluster.upgradeBatch(b, unchanged, names...)
		require.NoError(b, err)
		require.Len(b, result.Written, pods)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*pods), "µs/pod")
}
