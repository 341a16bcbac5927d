package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
)

// attempts is how often a pod is read anew when it changes under our hands.
const attempts = 3

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

// change takes one pod through a change, or notes why not. A pod that changed
// since it was read is looked at again as it is now.
func (a *Activities) change(ctx context.Context, reference protocol.PodReference, outcome *outcome, c change) error {
	reader := a.Cache
	for range attempts {
		again, err := a.attempt(ctx, reader, reference, outcome, c)
		if err != nil || !again {
			return err
		}
		reader = a.Live
	}
	return nil
}

func (a *Activities) attempt(ctx context.Context, reader client.Reader, reference protocol.PodReference, outcome *outcome, c change) (again bool, err error) {
	pod, err := a.read(ctx, reader, reference)
	if err != nil {
		return false, fmt.Errorf("read pod %s: %w", reference, err)
	}
	if pod == nil {
		return false, nil
	}
	decided, err := c.decide(ctx, pod)
	switch {
	case err != nil:
		return false, err
	case decided.refusal != nil:
		outcome.failed(reference, decided.refusal.Error())
	case decided.done:
		outcome.wrote(reference, pod.ResourceVersion)
	case decided.patch != nil:
		return write(ctx, pod, decided.patch, outcome, c)
	}
	return false, nil
}

func write(ctx context.Context, pod *corev1.Pod, patch []byte, outcome *outcome, c change) (again bool, err error) {
	reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	err = c.write(ctx, pod, patch)
	switch {
	case err == nil:
		outcome.wrote(reference, pod.ResourceVersion)
	case apierrors.IsConflict(err):
		return true, nil
	case apierrors.IsNotFound(err):
	case refused(err):
		outcome.failed(reference, reason(err))
	default:
		outcome.wrote(reference, "")
		return false, fmt.Errorf("write pod %s: %w", reference, err)
	}
	return false, nil
}

func (a *Activities) patchPod(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	// Of the answer only the resourceVersion is of use.
	written := &metav1.PartialObjectMetadata{}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	written.Namespace, written.Name = pod.Namespace, pod.Name
	if err := a.Writer.Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	pod.ResourceVersion = written.ResourceVersion
	return nil
}

// refused tells an answer about this pod from trouble with the API server.
func refused(err error) bool {
	switch {
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown,
		apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsUnauthorized(err):
		return false
	}
	return true
}

// reason says why a write was refused without the server's message: that may
// quote the pod, and with it what must not enter the history.
func reason(err error) string {
	text := string(apierrors.ReasonForError(err))
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			text += fmt.Sprintf("; %s: %s", cause.Field, cause.Type)
		}
	}
	return text
}

// outcome collects what became of the pods of a batch.
type outcome struct {
	mu      sync.Mutex
	written map[protocol.PodReference]string
	// fresh writes were not asked for yet.
	fresh    []protocol.WrittenPod
	refusals map[protocol.PodReference]string
	stopped  string
}

// wrote notes a write; without a resourceVersion, one that may have happened.
func (o *outcome) wrote(pod protocol.PodReference, resourceVersion string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = map[protocol.PodReference]string{}
	}
	o.written[pod] = resourceVersion
	o.fresh = append(o.fresh, protocol.WrittenPod{PodReference: pod, ResourceVersion: resourceVersion})
}

// count is how many pods were written.
func (o *outcome) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.written)
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

// upgrades lists the pods in the order they were chosen in.
func (o *outcome) upgrades(pods []protocol.SelectedPod) protocol.UpgradeBatchResult {
	tried := references(pods)
	result := protocol.UpgradeBatchResult{Written: o.writes(tried), Failed: o.failures(tried), Stopped: o.stopped}
	result.Skipped = len(pods) - len(result.Written) - len(result.Failed)
	return result
}

func (o *outcome) writes(pods []protocol.PodReference) []protocol.WrittenPod {
	var written []protocol.WrittenPod
	for _, pod := range pods {
		if version, ok := o.written[pod]; ok {
			written = append(written, protocol.WrittenPod{PodReference: pod, ResourceVersion: version})
		}
	}
	return written
}

func (o *outcome) resets(pods []protocol.PodReference) protocol.ResetBatchResult {
	failed := o.failures(pods)
	return protocol.ResetBatchResult{Reset: len(o.written), Skipped: len(pods) - len(o.written) - len(failed), Failed: failed}
}

func (o *outcome) conditions(pods []protocol.PodReference) protocol.WriteUpgradableConditionsResult {
	return protocol.WriteUpgradableConditionsResult{Written: o.writes(pods), Failed: o.failures(pods)}
}

func (o *outcome) failures(pods []protocol.PodReference) []protocol.FailedPod {
	var failed []protocol.FailedPod
	for _, pod := range pods {
		if reason, ok := o.refusals[pod]; ok {
			failed = append(failed, protocol.FailedPod{PodReference: pod, Reason: reason})
		}
	}
	return failed
}

// writers change pods while the next ones are looked for.
type writers struct {
	*Activities
	group *errgroup.Group
	// turns bounds how many pods are written at a time.
	turns chan struct{}
	// pending pods were begun, and are not done.
	pending atomic.Int64
}

// newWriters also returns the context to begin with: it ends at the first error.
func (a *Activities) newWriters(ctx context.Context) (*writers, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &writers{Activities: a, group: group, turns: make(chan struct{}, a.Writers)}, ctx
}

// begin takes one pod through a change when its turn comes. Once the worker
// stops, or an error was met, it does nothing.
func (w *writers) begin(ctx context.Context, reference protocol.PodReference, outcome *outcome, c change) {
	stopping := activity.GetWorkerStopChannel(ctx)
	w.pending.Add(1)
	w.group.Go(func() error {
		defer w.pending.Add(-1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			return nil
		case w.turns <- struct{}{}:
		}
		defer func() { <-w.turns }()
		return w.change(ctx, reference, outcome, c)
	})
}

// wait ends when all that were begun are done, with the first error.
func (w *writers) wait() error { return w.group.Wait() }

// each does something with every pod of a batch, several at a time. The first
// error ends it.
func each[T any](ctx context.Context, a *Activities, batch []T, do func(context.Context, T) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(a.Writers)
	stopping := activity.GetWorkerStopChannel(ctx)
	for _, one := range batch {
		group.Go(func() error {
			select {
			case <-groupCtx.Done():
				return groupCtx.Err()
			case <-stopping:
				return errStopping
			default:
				return do(groupCtx, one)
			}
		})
	}
	return group.Wait()
}
