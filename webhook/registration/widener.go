package registration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/webhook/server"
)

const (
	// widenTimeout limits the write of the match condition.
	widenTimeout = 800 * time.Millisecond
	// conflictInterval is the time between two attempts if another replica writes at the same time.
	conflictInterval = 10 * time.Millisecond
	// conditionDelay is the time that API servers have to observe a widened condition before the SidecarSet
	// is accepted. The sum of conditionDelay, widenTimeout and the time for the validation is below the
	// timeout of the webhook.
	conditionDelay = time.Second
)

// Widener adds the pods of a SidecarSet to the match condition of the pod webhook, before the SidecarSet is
// accepted. A Widener is safe for concurrent use.
type Widener struct {
	// client writes, and live reads from the API server.
	client client.Client
	live   client.Reader
	clock  clock.Clock
	// writing prevents conflicts between the requests of this process.
	writing *semaphore.Weighted

	mu sync.Mutex
	// next is the write that starts after the current write, or nil.
	next *sharedWrite
}

// sharedWrite is a write for several SidecarSets that are created at the same time.
type sharedWrite struct {
	added match.Condition
	// done is closed once err is set.
	done chan struct{}
	err  error
}

// NewWidener returns a Widener that writes with a client, and reads from the API server.
func NewWidener(writer client.Client, live client.Reader, now clock.Clock) *Widener {
	return &Widener{client: writer, live: live, clock: now, writing: semaphore.NewWeighted(1)}
}

// writtenKey is the key of the context value that Widen sets to true after a write.
type writtenKey struct{}

// Await returns a responder that delays the answer of respond after a write, so that API servers have time to
// observe the condition. The limits within respond do not include the delay. The responder also waits if the
// condition already contained the pods, because another request may have just added these pods.
func (w *Widener) Await(respond server.Responder) server.Responder {
	return func(ctx context.Context, buffers *server.Buffers) (status int, err error) {
		var written atomic.Bool
		status, err = respond(context.WithValue(ctx, writtenKey{}, &written), buffers)
		if written.Load() {
			select {
			case <-w.clock.After(conditionDelay):
			case <-ctx.Done():
			}
		}
		return status, err
	}
}

// Widen adds the pods in added to the match condition. Await then delays the answer.
func (w *Widener) Widen(ctx context.Context, added match.Condition) error {
	shared, first := w.join(added)
	if first {
		// The other requests need the write, even if this request is canceled.
		shared.err = w.write(context.WithoutCancel(ctx), shared)
		close(shared.done)
	}
	<-shared.done
	if err := shared.err; err != nil {
		return fmt.Errorf("update match condition %s of MutatingWebhookConfiguration %s: %w; without the update, the pods of the SidecarSet get no sidecars; apply config/rbac, or run the webhook without --match-conditions, and retry",
			match.ConditionName, configurationName, err)
	}
	if written, ok := ctx.Value(writtenKey{}).(*atomic.Bool); ok {
		written.Store(true)
	}
	return nil
}

// join adds pods to the next write, and reports whether the caller has to write.
func (w *Widener) join(added match.Condition) (shared *sharedWrite, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first = w.next == nil; first {
		w.next = &sharedWrite{done: make(chan struct{})}
	}
	w.next.added = w.next.added.Union(added)
	return w.next, first
}

// close prevents other requests from adding pods to shared, and returns the pods of shared.
func (w *Widener) close(shared *sharedWrite) match.Condition {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = nil
	return shared.added
}

func (w *Widener) write(ctx context.Context, shared *sharedWrite) error {
	ctx, cancel := context.WithTimeout(ctx, widenTimeout)
	defer cancel()
	failed := w.writing.Acquire(ctx, 1)
	added := w.close(shared)
	if failed != nil {
		return fmt.Errorf("wait for the write of another SidecarSet: %w", failed)
	}
	defer w.writing.Release(1)
	var conflict error
	err := wait.PollUntilContextCancel(ctx, conflictInterval, true, func(ctx context.Context) (bool, error) {
		err := w.tryWrite(ctx, added)
		if apierrors.IsConflict(err) {
			conflict = err
			return false, nil
		}
		return err == nil, err
	})
	if wait.Interrupted(err) && conflict != nil {
		return conflict
	}
	return err
}

// tryWrite merges the pods in added into the condition on the API server, with an optimistic lock. tryWrite
// never narrows the condition.
func (w *Widener) tryWrite(ctx context.Context, added match.Condition) error {
	live := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := w.live.Get(ctx, client.ObjectKey{Name: configurationName}, live); err != nil {
		// Without the configuration, API servers do not call the webhook for any pod.
		return client.IgnoreNotFound(err)
	}
	wanted := live.DeepCopy()
	pods := kube.WebhookNamed(wanted, podWebhook)
	if pods == nil {
		return nil
	}
	setCondition(pods, match.ConditionOf(pods).Union(added))
	if wanted.Annotations == nil {
		wanted.Annotations = map[string]string{}
	}
	wanted.Annotations[widenedAnnotation] = w.clock.Now().UTC().Format(time.RFC3339Nano)
	return w.client.Patch(ctx, wanted, client.StrategicMergeFrom(live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner))
}
