package activities

import (
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
)

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
