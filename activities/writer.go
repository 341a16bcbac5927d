package activities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// attempts is the maximum number of attempts of a write if the pod changes between read and write.
// resizeWrites is the number of writes before the upgrade of a pod whose containers are resized.
const (
	attempts     = 3
	resizeWrites = 2
)

// writer writes pods with uid and resourceVersion as preconditions.
type writer struct {
	*Activities
	// change names the kind of the writes in metrics and traces.
	change string
}

func (a *Activities) writer(change string) *writer { return &writer{a, change} }

// podResult is the result of a pod in a batch.
type podResult string

const (
	resultWritten  podResult = "written"
	resultRejected podResult = "refused"
	// resultSkipped is the result of a pod that is gone, that already has the change, or that must not be
	// changed.
	resultSkipped podResult = "skipped"
	// resultConflict and resultMore are results of an attempt, never of a pod. After resultMore,
	// the change of the pod needs another write.
	resultConflict podResult = "conflict"
	resultMore     podResult = "more"
)

// change describes the writes that change one pod.
type change struct {
	// wanted returns the current SidecarSet, or an error if the pods of the SidecarSet must not be written.
	// wanted is called immediately before the request is sent. If wanted is nil, the pod is always written.
	wanted func(context.Context) (*v1alpha1.SidecarSet, error)
	// decide returns the next write to a pod, based on the state in which the pod was read.
	decide func(context.Context, *corev1.Pod) (decision, error)
	write  func(context.Context, *corev1.Pod, []byte) error
}

// decision is the decision about one pod. The zero value skips the pod.
type decision struct {
	// done is set if the pod already has the change.
	done bool
	// patch contains the uid and the resourceVersion of the pod, so that the patch applies only
	// to this pod in this state.
	patch []byte
	// more is set if another write of the same change follows. resize is set if the patch changes
	// the subresource pods/resize.
	more, resize bool
	// set is the SidecarSet from which the patch was created.
	set *v1alpha1.SidecarSet
	// rejection is the reason why no patch can be created for this pod.
	rejection error
}

var errOtherContent = errors.New("the SidecarSet has different content now")

// stillWanted returns an error if the write of decided must no longer be sent. stillWanted is called
// immediately before the request is sent.
func (c change) stillWanted(ctx context.Context, decided decision) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.wanted == nil {
		return nil
	}
	set, err := c.wanted(ctx)
	if err != nil {
		return err
	}
	if set == nil || set.Generation != decided.set.Generation || set.Annotations[v1alpha1.HashAnnotation] != decided.set.Annotations[v1alpha1.HashAnnotation] {
		return errOtherContent
	}
	return nil
}

// apply writes a change to one pod, or records the reason why the pod is not written. If the pod has changed
// since the read, apply reads the pod again and decides again, until attempts conflicts have occurred. If apply
// returns an error, the result is invalid.
func (w *writer) apply(ctx context.Context, reference protocol.PodReference, outcome *outcome, c change) (podResult, error) {
	from, result := w.Cache, resultSkipped
	for conflicts, more := 0, 0; conflicts < attempts; from = w.Live {
		pod, err := readPod(ctx, from, reference)
		if err != nil {
			return "", fmt.Errorf("read pod %s: %w", reference, err)
		}
		if pod == nil {
			break
		}
		attempted, err := w.attempt(ctx, reference, pod, outcome, c)
		if err != nil {
			return "", err
		}
		switch {
		case attempted == resultConflict:
			conflicts++
			continue
		case attempted == resultMore && more < resizeWrites:
			conflicts, more = 0, more+1
			continue
		case attempted == resultMore:
			outcome.undone(reference, "another component changes the resources of the sidecars back")
			attempted = resultRejected
		}
		result = attempted
		break
	}
	w.Metrics.pods.WithLabelValues(w.change, string(result)).Inc()
	return result, nil
}

// attempt decides whether pod needs the change c, and if so, writes the pod. If attempt returns an error, the
// podResult is invalid.
func (w *writer) attempt(ctx context.Context, reference protocol.PodReference, pod *corev1.Pod, outcome *outcome, c change) (podResult, error) {
	decided, err := c.decide(ctx, pod)
	switch {
	case err != nil:
		return "", err
	case decided.rejection != nil:
		outcome.failed(reference, decided.rejection.Error())
		return resultRejected, nil
	case decided.done:
		outcome.wrote(reference, pod.ResourceVersion)
		return resultSkipped, nil
	case decided.patch == nil:
		return resultSkipped, nil
	}
	var arrived bool
	write := c.write
	if decided.resize {
		write = w.resizePod
	}
	err = w.traced(ctx, reference, func(ctx context.Context) (err error) {
		arrived, err = kube.SendIf(ctx, func() error { return c.stillWanted(ctx, decided) },
			func(ctx context.Context) error { return write(ctx, pod, decided.patch) })
		return err
	})
	switch {
	case err == nil && decided.more:
		if decided.resize {
			// The resize may make the pod unavailable, so the pod counts as written from now on.
			outcome.wrote(reference, pod.ResourceVersion)
		}
		return resultMore, nil
	case err == nil:
		outcome.wrote(reference, pod.ResourceVersion)
		return resultWritten, nil
	case isConflict(err), errors.Is(err, errOtherContent) && !arrived:
		return resultConflict, nil
	case isGone(err):
		return w.notFound(ctx, reference, outcome, decided.resize)
	case rejected(err):
		outcome.failed(reference, reason(err))
		return resultRejected, nil
	}
	if arrived {
		outcome.wrote(reference, "")
	}
	return "", fmt.Errorf("write pod %s: %w", reference, err)
}

// notFound returns the result of a write for which the API server answered NotFound. Before Kubernetes 1.33, the API
// server has no subresource pods/resize, so the resize of an existing pod is rejected.
func (w *writer) notFound(ctx context.Context, reference protocol.PodReference, outcome *outcome, resize bool) (podResult, error) {
	if !resize {
		return resultSkipped, nil
	}
	pod, err := readPod(ctx, w.Live, reference)
	switch {
	case err != nil:
		return "", fmt.Errorf("read pod %s after its resize was not found: %w", reference, err)
	case pod == nil:
		return resultSkipped, nil
	}
	outcome.failed(reference, "the API server has no subresource pods/resize")
	return resultRejected, nil
}

// traced wraps a write in a span. The span contains the name of the pod, but not the content of the write.
func (w *writer) traced(ctx context.Context, pod protocol.PodReference, write func(context.Context) error) error {
	ctx, span := w.Tracer.Start(ctx, "PatchPod", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
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
	// The worker uses only the resourceVersion in the response, so the response is decoded without the spec.
	written := &metav1.PartialObjectMetadata{}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	written.Namespace, written.Name = pod.Namespace, pod.Name
	if err := w.Writer.Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	pod.ResourceVersion = written.ResourceVersion
	return nil
}

func (w *writer) resizePod(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	written := pod.DeepCopy()
	if err := w.Resize.Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	pod.ResourceVersion = written.ResourceVersion
	return nil
}

func (w *writer) patchStatus(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	return w.Status.Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
}

// rejected reports whether an error is a rejection of the write to this pod, and not a failure of
// the API server.
func rejected(err error) bool {
	switch {
	case denied(err):
		return true
	case apierrors.IsUnexpectedServerError(err) && statusCode(err) >= http.StatusInternalServerError:
		// A proxy or a failing API server sent the response, so the API server may have executed the write.
		return false
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false // the pod has changed, or is gone
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsUnauthorized(err):
		return false
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		// If a webhook rejects the write with a message and no reason, the response contains no reason.
		code := statusCode(err)
		return code == http.StatusBadRequest || code == http.StatusForbidden || code == http.StatusUnprocessableEntity
	}
	return true
}

func isConflict(err error) bool { return apierrors.IsConflict(err) && !denied(err) }

func isGone(err error) bool { return apierrors.IsNotFound(err) && !denied(err) }

// denied reports whether an admission webhook or policy rejected the write. denied evaluates the message and not
// the status code, because a webhook may choose any code, such as 404, 409 or 500.
func denied(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return strings.HasPrefix(message, "admission webhook ") && strings.Contains(message, " denied the request") ||
		strings.Contains(message, "ValidatingAdmissionPolicy '") && strings.Contains(message, " denied request")
}

// reason returns the reason why a write was rejected. reason omits the message of the server, because the message
// may contain parts of the pod, which must not enter the workflow history.
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
			// The causes of a rejection by a policy have neither a field nor a type.
			if cause.Field != "" || cause.Type != "" {
				text += fmt.Sprintf("; %s: %s", cause.Field, cause.Type)
			}
		}
	}
	return text
}

// statusCode returns the HTTP status of the response, or zero if there was no response.
func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// outcome collects the results of the pods of a batch.
type outcome struct {
	mu      sync.Mutex
	written map[protocol.PodReference]string
	// fresh lists the writes that newWrites has not returned yet.
	fresh      []protocol.WrittenPod
	rejections map[protocol.PodReference]string
	// lost contains the written pods whose changes another component has reverted.
	lost map[protocol.PodReference]bool
	// released lists the pods whose upgrade ended without a write, since the last call of releasedPods.
	released []protocol.PodReference
	stopped  string
	// frozen is set if a RolloutFreeze, or the end of a window, ended the batch.
	frozen bool
	// waiting is the reason for the wait while the batch waits for the cluster-wide limit, and empty otherwise.
	// waited is set once the batch has waited for the limit.
	waiting string
	waited  bool
}

// wrote records a write. An empty resourceVersion means that the write may not have been executed.
func (o *outcome) wrote(pod protocol.PodReference, resourceVersion string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = map[protocol.PodReference]string{}
	}
	o.written[pod] = resourceVersion
	o.fresh = append(o.fresh, protocol.WrittenPod{PodReference: pod, ResourceVersion: resourceVersion})
}

// details returns the details of a heartbeat: the number of written pods, and the text of waiting
// if the batch waits.
func (o *outcome) details() []any {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting == "" {
		return []any{len(o.written)}
	}
	return []any{len(o.written), o.waiting}
}

// newWrites returns the writes since the last call.
func (o *outcome) newWrites() []protocol.WrittenPod {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := o.fresh
	o.fresh = nil
	return fresh
}

// release releases the slot of a pod whose upgrade ended without a write.
func (o *outcome) release(pod protocol.PodReference) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, written := o.written[pod]; !written {
		o.released = append(o.released, pod)
	}
}

func (o *outcome) releasedPods() []protocol.PodReference {
	o.mu.Lock()
	defer o.mu.Unlock()
	released := o.released
	o.released = nil
	return released
}

func (o *outcome) failed(pod protocol.PodReference, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rejections == nil {
		o.rejections = map[protocol.PodReference]string{}
	}
	o.rejections[pod] = reason
}

// undone records the rejection of a pod whose changes another component has reverted. The pod also counts as
// written, because the writes may have restarted a container.
func (o *outcome) undone(pod protocol.PodReference, reason string) {
	o.failed(pod, reason)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil {
		o.lost = map[protocol.PodReference]bool{}
	}
	o.lost[pod] = true
}

// stop records the reason of err if err is the error stopped, and whether err is the error frozen.
func (o *outcome) stop(err error) {
	var reason stopped
	if errors.As(err, &reason) {
		o.stopped = string(reason)
	}
	o.frozen = errors.As(err, new(frozen))
}

func (o *outcome) wait(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting, o.waited = what, o.waited || what != ""
}

// limited reports whether the batch waited for the cluster-wide limit at any time.
func (o *outcome) limited() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waited
}

// writes returns the written pods, in the order of pods.
func (o *outcome) writes(pods []protocol.PodReference) []protocol.WrittenPod {
	var written []protocol.WrittenPod
	for _, pod := range pods {
		if version, ok := o.written[pod]; ok {
			written = append(written, protocol.WrittenPod{PodReference: pod, ResourceVersion: version})
		}
	}
	return written
}

// isWritten reports whether a write to a pod may have arrived.
func (o *outcome) isWritten(pod protocol.PodReference) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, written := o.written[pod]
	return written
}

// failures returns the rejected pods, in the order of pods. If a pod was resized and the upgrade was rejected,
// the pod counts as written and not as rejected, unless another component has reverted the resize.
func (o *outcome) failures(pods []protocol.PodReference) []protocol.RejectedPod {
	var failed []protocol.RejectedPod
	for _, pod := range pods {
		if _, written := o.written[pod]; written && !o.lost[pod] {
			continue
		}
		if reason, ok := o.rejections[pod]; ok {
			failed = append(failed, protocol.RejectedPod{PodReference: pod, Reason: reason})
		}
	}
	return failed
}
