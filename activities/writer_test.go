package activities

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
)

var podResource = schema.GroupResource{Resource: "pods"}

func notFound(name string) error { return apierrors.NewNotFound(podResource, name) }

func TestReasonsOfFailedWrites(t *testing.T) {
	assert.Equal(t, "no answer", reason(errors.New("connection reset")))
	assert.Equal(t, "HTTP 502 Bad Gateway", reason(&apierrors.StatusError{ErrStatus: metav1.Status{Code: 502}}))
	assert.Equal(t, "Conflict", reason(apierrors.NewConflict(podResource, "a", errors.New("changed"))))
}

func TestResultsOfGuardedWrites(t *testing.T) {
	conflict := apierrors.NewConflict(podResource, "a", errors.New("changed"))
	invalid := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Message: "spec quotes a password",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.containers", Message: "a password"}}},
	}}
	// A webhook denies the patch with a message and no reason.
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "the pod quotes a password"}}
	// The webhook chooses the code. The API server begins the message with the name of the webhook.
	deniedWith := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: `admission webhook "owners.example.com" denied the request: a password`}}
	}
	// A proxy responds with HTML and without a Status object.
	gateway := apierrors.NewGenericServerResponse(http.StatusBadGateway, "patch", podResource, "a", "<html>", 0, true)
	patch := decision{patch: []byte("{}")}
	reference := refTo("a")
	wrote := func(version string) []protocol.WrittenPod {
		return []protocol.WrittenPod{{PodReference: reference, ResourceVersion: version}}
	}
	failed := func(reason string) []protocol.RejectedPod {
		return []protocol.RejectedPod{{PodReference: reference, Reason: reason}}
	}
	for name, c := range map[string]struct {
		reference protocol.PodReference
		decision  decision
		decideErr error
		// answers are the responses of the API server, one for each write.
		answers []error
		written []protocol.WrittenPod
		failed  []protocol.RejectedPod
		err     string
		writes  int
	}{
		"written":                        {reference, patch, nil, []error{nil}, wrote("8"), nil, "", 1},
		"left alone":                     {reference, decision{}, nil, nil, nil, nil, "", 0},
		"done already":                   {reference, decision{done: true}, nil, nil, wrote("7"), nil, "", 0},
		"no patch can be made":           {reference, decision{rejection: errors.New("bad annotation")}, nil, nil, nil, failed("bad annotation"), "", 0},
		"no decision can be made":        {reference, decision{}, errors.New("away"), nil, nil, nil, "away", 0},
		"deleted before the read":        {refTo("b"), patch, nil, nil, nil, nil, "", 0},
		"another under its name":         {protocol.PodReference{Namespace: "d", Name: "a", UID: "before"}, patch, nil, nil, nil, nil, "", 0},
		"deleted before the write":       {reference, patch, nil, []error{notFound("a")}, nil, nil, "", 1},
		"changed, then written":          {reference, patch, nil, []error{conflict, nil}, wrote("8"), nil, "", 2},
		"changes all the time":           {reference, patch, nil, []error{conflict, conflict, conflict}, nil, nil, "", attempts},
		"rejected, the pod is not named": {reference, patch, nil, []error{invalid}, nil, failed("Invalid; spec.containers: FieldValueInvalid"), "", 1},
		"forbidden":                      {reference, patch, nil, []error{apierrors.NewForbidden(podResource, "a", errors.New("policy"))}, nil, failed("Forbidden"), "", 1},
		"denied without a reason":        {reference, patch, nil, []error{denied}, nil, failed("HTTP 400 Bad Request"), "", 1},
		"denied with 404":                {reference, patch, nil, []error{deniedWith(404)}, nil, failed("HTTP 404 Not Found"), "", 1},
		"denied with 409":                {reference, patch, nil, []error{deniedWith(409)}, nil, failed("HTTP 409 Conflict"), "", 1},
		"denied with 429":                {reference, patch, nil, []error{deniedWith(429)}, nil, failed("HTTP 429 Too Many Requests"), "", 1},
		"denied with 500":                {reference, patch, nil, []error{deniedWith(500)}, nil, failed("HTTP 500 Internal Server Error"), "", 1},
		"a proxy fails":                  {reference, patch, nil, []error{gateway}, wrote(""), nil, "write pod d/a: " + gateway.Error(), 1},
		"perhaps written":                {reference, patch, nil, []error{errors.New("connection reset")}, wrote(""), nil, "write pod d/a: connection reset", 1},
		"undone by another component":    {reference, decision{patch: []byte("{}"), more: true}, nil, []error{nil, nil, nil}, nil, failed("another component changes the resources of the sidecars back"), "", 3},
		"throttled":                      {reference, patch, nil, []error{apierrors.NewTooManyRequests("slow down", 1)}, nil, nil, "write pod d/a: slow down", 1},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"))
			var outcome outcome
			writes := 0
			_, err := cluster.writer(changeUpgrade).apply(t.Context(), c.reference, &outcome, change{
				decide: func(context.Context, *corev1.Pod) (decision, error) { return c.decision, c.decideErr },
				write: func(ctx context.Context, pod *corev1.Pod, _ []byte) error {
					return throughTheGate(ctx, func() error {
						pod.ResourceVersion = "8"
						writes++
						return c.answers[writes-1]
					})
				},
			})
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
			both := []protocol.PodReference{reference, c.reference}[:1]
			assert.Equal(t, c.written, outcome.writes(both))
			assert.Equal(t, c.failed, outcome.failures(both))
			assert.Equal(t, c.writes, writes)
		})
	}
}

// The write fails because the cached pod is stale. The retry reads the pod from the API server.
func TestAfterAConflictThePodIsReadFromTheAPIServer(t *testing.T) {
	pod := webPod("a")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), pod)
	cluster.edit(pod, func() { pod.Labels["seen"] = "live" })
	var seen []string
	var outcome outcome
	_, err := cluster.writer(changeUpgrade).apply(t.Context(), refTo("a"), &outcome, change{
		decide: func(_ context.Context, pod *corev1.Pod) (decision, error) {
			seen = append(seen, pod.Labels["seen"])
			return decision{patch: []byte("{}")}, nil
		},
		write: func(context.Context, *corev1.Pod, []byte) error {
			if len(seen) == 1 {
				return apierrors.NewConflict(podResource, "a", errors.New("changed"))
			}
			return nil
		},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"", "live"}, seen)
}

func TestPatchesCarryTheirPrecondition(t *testing.T) {
	pod := webPod("a")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), pod)
	patch := func(version string) []byte {
		return []byte(`{"metadata":{"uid":"u-a","resourceVersion":"` + version + `","labels":{"patched":"yes"}}}`)
	}
	err := cluster.writer(changeUpgrade).patchPod(t.Context(), pod.DeepCopy(), patch("6"))
	require.True(t, apierrors.IsConflict(err), "%v", err)
	written := pod.DeepCopy()
	require.NoError(t, cluster.writer(changeUpgrade).patchPod(t.Context(), written, patch(pod.ResourceVersion)))
	live, err := readPod(t.Context(), cluster.Live, refTo("a"))
	require.NoError(t, err)
	assert.Equal(t, live.ResourceVersion, written.ResourceVersion)
	assert.Equal(t, "yes", live.Labels["patched"])
}

func TestThePoolRunsABoundedNumberOfTasks(t *testing.T) {
	err := inActivity(t, nil, func(ctx context.Context) error {
		pool, _ := newPool(ctx, 2)
		begun, finish := make(chan struct{}), make(chan struct{})
		var running atomic.Int64
		for range 6 {
			pool.submit(func(context.Context) error {
				running.Add(1)
				defer running.Add(-1)
				begun <- struct{}{}
				<-finish
				return nil
			})
		}
		<-begun
		<-begun
		assert.Equal(t, int64(6), pool.pending.Load())
		for range 4 {
			assert.Equal(t, int64(2), running.Load())
			finish <- struct{}{}
			<-begun
		}
		close(finish)
		err := pool.wait()
		assert.Zero(t, pool.pending.Load())
		return err
	})
	require.NoError(t, err)
}

func TestTheFirstErrorKeepsTasksThatWaitFromRunning(t *testing.T) {
	away, ran := errors.New("away"), 0
	err := inActivity(t, nil, func(ctx context.Context) error {
		pool, _ := newPool(ctx, 1)
		for range 3 {
			pool.submit(func(context.Context) error {
				ran++
				return away
			})
		}
		return pool.wait()
	})
	require.ErrorIs(t, err, away)
	assert.Equal(t, 1, ran)
}

func TestQueuedWritesAreDroppedWhenTheWorkerStops(t *testing.T) {
	stopping, ran := make(chan struct{}), 0
	err := inActivity(t, stopping, func(ctx context.Context) error {
		pool, _ := newPool(ctx, 1)
		close(stopping)
		for range 3 {
			pool.submit(func(context.Context) error {
				ran++
				return nil
			})
		}
		return pool.wait()
	})
	require.ErrorIs(t, err, errStopping)
	assert.Zero(t, ran)
}

// resizeWriter accepts each write of the subresource pods/resize.
type resizeWriter struct{ client.SubResourceWriter }

func (resizeWriter) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	o.SetResourceVersion("8")
	return nil
}

func assertKeepsSlot(t *testing.T, o *outcome, pod protocol.PodReference) {
	t.Helper()
	assert.True(t, o.isWritten(pod))
	o.release(pod)
	assert.Empty(t, o.releasedPods())
}

// The resize may restart a container, so the slot of the pod must not be released.
func TestSpec7_9_AResizedPodCountsAsWrittenIfItsUpgradeIsRejected(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"))
	cluster.Resize = resizeWriter{}
	var outcome outcome
	writes := []decision{{patch: []byte("{}"), more: true, resize: true}, {patch: []byte("{}")}}
	result, err := cluster.writer(changeUpgrade).apply(t.Context(), refTo("a"), &outcome, change{
		decide: func(context.Context, *corev1.Pod) (next decision, _ error) {
			next, writes = writes[0], writes[1:]
			return next, nil
		},
		write: func(context.Context, *corev1.Pod, []byte) error {
			return apierrors.NewForbidden(podResource, "a", errors.New("policy"))
		},
	})
	require.NoError(t, err)
	assert.Equal(t, resultRejected, result)
	all := []protocol.PodReference{refTo("a")}
	assertKeepsSlot(t, &outcome, all[0])
	assert.Equal(t, []protocol.WrittenPod{{PodReference: refTo("a"), ResourceVersion: "8"}}, outcome.writes(all))
	assert.Empty(t, outcome.failures(all))
}

// Each resize may have restarted a container, so the slot of the pod must not be released.
func TestSpec7_9_AResizedPodKeepsItsSlotIfTheResizeDoesNotLast(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"))
	cluster.Resize = resizeWriter{}
	var outcome outcome
	result, err := cluster.writer(changeUpgrade).apply(t.Context(), refTo("a"), &outcome, change{
		decide: func(context.Context, *corev1.Pod) (decision, error) {
			return decision{patch: []byte("{}"), more: true, resize: true}, nil
		},
	})
	require.NoError(t, err)
	assert.Equal(t, resultRejected, result)
	all := []protocol.PodReference{refTo("a")}
	assertKeepsSlot(t, &outcome, all[0])
	assert.Len(t, outcome.writes(all), 1)
	assert.Equal(t, []protocol.RejectedPod{{PodReference: refTo("a"), Reason: "another component changes the resources of the sidecars back"}}, outcome.failures(all))
}

type missingResize struct{ client.SubResourceWriter }

func (missingResize) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", podResource, o.GetName(), "404 page not found", 0, true)
}

// API servers before Kubernetes 1.33 answer a resize with NotFound.
func TestSpec7_9_APodWithoutTheSubresourceResizeIsRejected(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"))
	cluster.Resize = missingResize{}
	for pod, want := range map[string]podResult{"a": resultRejected, "gone": resultSkipped} {
		var outcome outcome
		result, err := cluster.writer(changeUpgrade).attempt(t.Context(), refTo(pod), webPod(pod), &outcome, change{
			decide: func(context.Context, *corev1.Pod) (decision, error) {
				return decision{patch: []byte("{}"), more: true, resize: true}, nil
			},
		})
		require.NoError(t, err)
		assert.Equal(t, want, result, pod)
		assert.Len(t, outcome.failures([]protocol.PodReference{refTo(pod)}), map[podResult]int{resultRejected: 1}[want])
	}
}
