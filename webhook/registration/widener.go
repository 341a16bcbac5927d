package registration

import (
	"context"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/match"
)

const (
	// widenTimeout limits the write of the match condition.
	widenTimeout = time.Second
	// conflictInterval is the time between two attempts if another replica writes at the same time.
	conflictInterval = 10 * time.Millisecond
	// conditionDelay is the time that API servers have to observe a widened condition before the
	// SidecarSet is accepted. With the validation and widenTimeout, it is below the timeout of the
	// API server.
	conditionDelay = time.Second
)

// Widener adds the pods of a SidecarSet to the match condition of the pod webhook, before the SidecarSet
// is accepted. It is safe for concurrent use.
type Widener struct {
	// Client writes, and Live reads from the API server.
	Client client.Client
	Live   client.Reader
	Clock  clock.Clock
	// writing prevents conflicts between the requests of this process.
	writing sync.Mutex
}

// Widen returns after API servers had time to observe the condition. It waits even if the condition already
// contained the pods, because another request may have added them just now.
func (w *Widener) Widen(ctx context.Context, added match.Condition) error {
	if err := w.write(ctx, added); err != nil {
		return fmt.Errorf("add its pods to the match condition %s of MutatingWebhookConfiguration %s, without which its pods would get no sidecars: %w; apply config/rbac or run the webhook without --match-conditions, and try again",
			match.ConditionName, configurationName, err)
	}
	select {
	case <-w.Clock.After(conditionDelay):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until API servers observe the match condition: %w; try again", ctx.Err())
	}
}

func (w *Widener) write(ctx context.Context, added match.Condition) error {
	ctx, cancel := context.WithTimeout(ctx, widenTimeout)
	defer cancel()
	w.writing.Lock()
	defer w.writing.Unlock()
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

// tryWrite never narrows the condition: it merges the added pods into the condition in the API server,
// with an optimistic lock.
func (w *Widener) tryWrite(ctx context.Context, added match.Condition) error {
	live := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := w.Live.Get(ctx, client.ObjectKey{Name: configurationName}, live); err != nil {
		// Without the configuration, API servers do not call the webhook for any pod.
		return client.IgnoreNotFound(err)
	}
	wanted := live.DeepCopy()
	pods := podHook(wanted)
	if pods == nil {
		return nil
	}
	setCondition(pods, match.ConditionOf(pods).Union(added))
	if wanted.Annotations == nil {
		wanted.Annotations = map[string]string{}
	}
	wanted.Annotations[widenedAnnotation] = w.Clock.Now().UTC().Format(time.RFC3339Nano)
	return w.Client.Patch(ctx, wanted, client.StrategicMergeFrom(live, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner))
}
