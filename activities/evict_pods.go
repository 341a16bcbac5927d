package activities

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// errEvictionsStopped is the reason for which an eviction is not sent.
var errEvictionsStopped = errors.New("the policy, the SidecarSet or a RolloutFreeze no longer permits the eviction")

// EvictPods evicts pods through the eviction API, so that PodDisruptionBudgets apply. A retry evicts
// no other pods, because each eviction names the uid and the resourceVersion of its pod.
func (a *Activities) EvictPods(ctx context.Context, input protocol.EvictPodsInput) (result protocol.EvictPodsResult, err error) {
	defer keepHeartbeating(ctx, a.Clock)()
	for _, e := range input.Evictions {
		check := a.evictionPermitted(ctx, input, e)
		for _, pod := range e.Pods {
			evicted, rejection, err := a.evict(ctx, pod, check)
			switch {
			case err != nil:
				return result, fmt.Errorf("evict pod %s: %w", pod.PodReference, err)
			case evicted:
				result.Evicted = append(result.Evicted, pod.UID)
			case rejection != "":
				result.Rejected = append(result.Rejected, protocol.RejectedPod{PodReference: pod.PodReference, Reason: rejection})
			}
		}
	}
	return result, nil
}

// evictionPermitted returns the check that runs when the eviction leaves the process. It reads the
// policy, the SidecarSet and the RolloutFreezes from the API server, at most maxAge ago.
func (a *Activities) evictionPermitted(ctx context.Context, input protocol.EvictPodsInput, e protocol.Eviction) func() error {
	set := newRecent(a.Clock, "SidecarSet "+e.SidecarSet.Name, func(ctx context.Context) (string, error) {
		return a.whyNotEvicted(ctx, input, e)
	})
	return func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		reason, err := set.get(ctx)
		if err == nil && reason != "" {
			err = fmt.Errorf("%w: %s", errEvictionsStopped, reason)
		}
		return err
	}
}

func (a *Activities) whyNotEvicted(ctx context.Context, input protocol.EvictPodsInput, e protocol.Eviction) (string, error) {
	now := a.Clock.Now()
	policies, err := a.policiesSince(ctx, now)
	if err != nil {
		return "", err
	}
	policy := evictingPolicy(policies, input.Policy)
	if policy == nil || policy.Generation != input.Generation {
		return "RolloutPolicy " + input.Policy.Name + " has changed", nil
	}
	set, err := a.liveSet(ctx, e.SidecarSet)
	switch {
	case err != nil:
		return "", err
	case set == nil || set.Generation != e.Generation:
		return "SidecarSet " + e.SidecarSet.Name + " has changed", nil
	}
	freezes, err := a.recentFreezes().since(ctx, now)
	if err != nil {
		return "", err
	}
	if freeze := stage.FreezeFor(set, nil, freezes, now); freeze != nil {
		return stage.FreezeMessage(freeze), nil
	}
	return notEvictable(set), nil
}

// evict evicts one pod. evicted reports whether the pod is terminating or gone. Otherwise, rejection
// is the reason, or empty if the pod has changed since it was chosen.
func (a *Activities) evict(ctx context.Context, chosen protocol.WrittenPod, check func() error) (evicted bool, rejection string, err error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: chosen.Namespace, Name: chosen.Name}}
	request := &policyv1.Eviction{
		ObjectMeta:    pod.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &chosen.UID, ResourceVersion: &chosen.ResourceVersion}},
	}
	_, err = kube.SendIf(ctx, check, func(ctx context.Context) error { return a.Evict.Create(ctx, pod, request) })
	switch {
	case err == nil:
		return true, "", nil
	case errors.Is(err, errEvictionsStopped), apierrors.IsTooManyRequests(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return false, evictionRejection(err), nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		now, err := readPod(ctx, a.Live, chosen.PodReference)
		return err == nil && (now == nil || now.DeletionTimestamp != nil), "", err
	}
	return false, "", err
}

// evictionRejection is the reason of a rejected eviction. The API server names the
// PodDisruptionBudget in a cause.
func evictionRejection(err error) string {
	if errors.Is(err, errEvictionsStopped) {
		return err.Error()
	}
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return cause.Message
	}
	return reason(err)
}
