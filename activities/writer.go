package activities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
)

// attempts is how often a pod is read anew when it changes between read and write.
const attempts = 3

// writer takes pods through guarded writes.
type writer struct {
	reader *reader
	pods   client.Writer
	status client.SubResourceWriter
	// change is what it writes, for traces.
	change string
	tracer trace.Tracer
	// results counts pods by result.
	results *prometheus.CounterVec
}

// podResult is what became of a pod in a batch.
type podResult string

const (
	resultWritten podResult = "written"
	resultRefused podResult = "refused"
	// resultSkipped pods are gone, have the change already, or are not to have it.
	resultSkipped podResult = "skipped"
	// resultConflict is an attempt's, never a batch's.
	resultConflict podResult = "conflict"
)

// change is one guarded write to one pod.
type change struct {
	// decide looks at the pod as it was read and says what to write.
	decide func(context.Context, *corev1.Pod) (decision, error)
	write  func(context.Context, *corev1.Pod, []byte) error
}

// decision about a pod. The zero decision leaves it alone.
type decision struct {
	// done pods have the change already.
	done bool
	// patch carries uid and resourceVersion, so that it fits this pod in this
	// state only.
	patch []byte
	// refusal says why no patch can be made for this pod.
	refusal error
}

// apply takes one pod through a change, or records why not. A pod that changed
// since it was read is decided about again as it is now.
func (w *writer) apply(ctx context.Context, reference protocol.PodReference, outcome *outcome, c change) error {
	read := w.reader.cachedPod
	for range attempts {
		pod, err := read(ctx, reference)
		if err != nil {
			return fmt.Errorf("read pod %s: %w", reference, err)
		}
		if pod == nil {
			break
		}
		result, err := w.attempt(ctx, pod, outcome, c)
		if err != nil {
			return err
		}
		if result != resultConflict {
			w.results.WithLabelValues(string(result)).Inc()
			return nil
		}
		read = w.reader.livePod
	}
	w.results.WithLabelValues(string(resultSkipped)).Inc()
	return nil
}

// attempt decides about a pod and writes it. The result is of no use with an error.
func (w *writer) attempt(ctx context.Context, pod *corev1.Pod, outcome *outcome, c change) (podResult, error) {
	reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	decided, err := c.decide(ctx, pod)
	switch {
	case err != nil:
		return "", err
	case decided.refusal != nil:
		outcome.failed(reference, decided.refusal.Error())
		return resultRefused, nil
	case decided.done:
		outcome.wrote(reference, pod.ResourceVersion)
		return resultSkipped, nil
	case decided.patch == nil:
		return resultSkipped, nil
	}
	err = w.traced(ctx, reference, func(ctx context.Context) error { return c.write(ctx, pod, decided.patch) })
	switch {
	case err == nil:
		outcome.wrote(reference, pod.ResourceVersion)
		return resultWritten, nil
	case apierrors.IsConflict(err):
		return resultConflict, nil
	case apierrors.IsNotFound(err):
		return resultSkipped, nil
	case refused(err):
		outcome.failed(reference, reason(err))
		return resultRefused, nil
	}
	outcome.wrote(reference, "")
	return "", fmt.Errorf("write pod %s: %w", reference, err)
}

// traced makes a span of a write, which names the pod and never what is written.
func (w *writer) traced(ctx context.Context, pod protocol.PodReference, write func(context.Context) error) error {
	ctx, span := w.tracer.Start(ctx, "PatchPod", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.K8SNamespaceName(pod.Namespace), semconv.K8SPodName(pod.Name), semconv.K8SPodUID(string(pod.UID)),
		attribute.String("outrigger.change", w.change)))
	defer span.End()
	err := write(ctx)
	if err != nil {
		span.SetStatus(codes.Error, reason(err))
	}
	return err
}

func (w *writer) patchPod(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	// Of the answer only the resourceVersion is of use.
	written := &metav1.PartialObjectMetadata{}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	written.Namespace, written.Name = pod.Namespace, pod.Name
	if err := w.pods.Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	pod.ResourceVersion = written.ResourceVersion
	return nil
}

func (w *writer) patchStatus(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	return w.status.Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
}

// refused reports whether an error is an answer about this pod, and not trouble
// with the API server.
func refused(err error) bool {
	switch {
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsUnauthorized(err):
		return false
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		// A webhook that denies with a message alone gives no reason.
		code := statusCode(err)
		return code == http.StatusBadRequest || code == http.StatusForbidden || code == http.StatusUnprocessableEntity
	}
	return true
}

// reason says why a write was refused without the server's message: that may
// quote the pod, and with it what must not enter the history.
func reason(err error) string {
	text := string(apierrors.ReasonForError(err))
	switch code := int(statusCode(err)); {
	case text == "" && code == 0:
		text = "no answer"
	case text == "":
		text = fmt.Sprintf("HTTP %d %s", code, http.StatusText(code))
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			// Policies give neither.
			if cause.Field != "" || cause.Type != "" {
				text += fmt.Sprintf("; %s: %s", cause.Field, cause.Type)
			}
		}
	}
	return text
}

// statusCode is that of the answer; zero when there is none.
func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// outcome collects what became of the pods of a batch.
type outcome struct {
	mu      sync.Mutex
	written map[protocol.PodReference]string
	// fresh writes were not asked for yet.
	fresh    []protocol.WrittenPod
	refusals map[protocol.PodReference]string
	stopped  string
	// waiting says what the batch waits for, if that is not of its set.
	waiting string
}

// wrote records a write; without a resourceVersion, one that may have happened.
func (o *outcome) wrote(pod protocol.PodReference, resourceVersion string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = map[protocol.PodReference]string{}
	}
	o.written[pod] = resourceVersion
	o.fresh = append(o.fresh, protocol.WrittenPod{PodReference: pod, ResourceVersion: resourceVersion})
}

// has reports whether a pod was written, or its write refused.
func (o *outcome) has(pod protocol.PodReference) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, written := o.written[pod]
	_, refused := o.refusals[pod]
	return written || refused
}

// count is how many pods were written.
func (o *outcome) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.written)
}

// details are those of a heartbeat: how many pods were written, and what is waited for.
func (o *outcome) details() []any {
	count := o.count()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting == "" {
		return []any{count}
	}
	return []any{count, o.waiting}
}

// newWrites are those since the last call.
func (o *outcome) newWrites() []protocol.WrittenPod {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := o.fresh
	o.fresh = nil
	return fresh
}

func (o *outcome) failed(pod protocol.PodReference, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refusals == nil {
		o.refusals = map[protocol.PodReference]string{}
	}
	o.refusals[pod] = why
}

func (o *outcome) stop(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = why
}

func (o *outcome) wait(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = what
}

// writes lists those of the pods that were written, in their order.
func (o *outcome) writes(pods []protocol.PodReference) []protocol.WrittenPod {
	var written []protocol.WrittenPod
	for _, pod := range pods {
		if version, ok := o.written[pod]; ok {
			written = append(written, protocol.WrittenPod{PodReference: pod, ResourceVersion: version})
		}
	}
	return written
}

// failures lists those of the pods whose write was refused, in their order.
func (o *outcome) failures(pods []protocol.PodReference) []protocol.FailedPod {
	var failed []protocol.FailedPod
	for _, pod := range pods {
		if reason, ok := o.refusals[pod]; ok {
			failed = append(failed, protocol.FailedPod{PodReference: pod, Reason: reason})
		}
	}
	return failed
}

// pool runs tasks, a bounded number at a time. The first error ends it: tasks
// that have not begun then do nothing.
type pool struct {
	group *errgroup.Group
	slots chan struct{}
	// stopping is closed when the worker stops; tasks that have not begun then end
	// with ifStopping.
	stopping   <-chan struct{}
	ifStopping error
	// pending tasks were submitted, and are not done.
	pending atomic.Int64
}

// newPool also returns the context of its tasks: it ends at the first error.
func newPool(ctx context.Context, size int, ifStopping error) (*pool, context.Context) {
	stopping := activity.GetWorkerStopChannel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	return &pool{group: group, slots: make(chan struct{}, size), stopping: stopping, ifStopping: ifStopping}, ctx
}

// submit has a task run when its turn comes. It does not wait.
func (p *pool) submit(ctx context.Context, task func(context.Context) error) {
	p.pending.Add(1)
	p.group.Go(func() error {
		defer p.pending.Add(-1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.stopping:
			return p.ifStopping
		case p.slots <- struct{}{}:
		}
		defer func() { <-p.slots }()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.stopping:
			return p.ifStopping
		default:
			return task(ctx)
		}
	})
}

// wait ends when all tasks are done, with the first error.
func (p *pool) wait() error { return p.group.Wait() }
