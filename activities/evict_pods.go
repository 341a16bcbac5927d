package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

var (
	// errEvictionsStopped is the error of an eviction that is no longer permitted.
	errEvictionsStopped = errors.New("the policy, the SidecarSet or a RolloutFreeze no longer permits the eviction")
	// errChoiceTooOld is the error of an eviction whose pod was chosen too long ago.
	errChoiceTooOld = errors.New("the choice of the pod is too old")
)

const (
	// evictionTimeout is the timeout of one eviction. Without the timeout, client-go would wait for the time in
	// the Retry-After header of a 429 response, which may be long.
	evictionTimeout = 15 * time.Second
	// evictionsLimit is the longest time between the choice of a pod and the eviction. After this time, other
	// pods of the same owner may have become unready.
	evictionsLimit = time.Minute
)

// EvictPods evicts pods through the eviction API, so that PodDisruptionBudgets apply. A retry evicts only the
// chosen pods, because the uid and the resourceVersion of the pod are preconditions of each eviction. A worker
// that loses the connection to Temporal stops before the server starts the retry. The result lists the evicted
// pods and the rejected pods.
func (a *Activities) EvictPods(ctx context.Context, input protocol.EvictPodsInput) (protocol.EvictPodsResult, error) {
	now := a.Clock.Now()
	ctx, stop := newWriteDeadline(a.Clock).keep(ctx, answeredHeartbeat(ctx, &outcome{}))
	defer stop()
	return a.evictPods(ctx, input, now)
}

func (a *Activities) evictPods(ctx context.Context, input protocol.EvictPodsInput, now time.Time) (result protocol.EvictPodsResult, err error) {
	started := activity.GetInfo(ctx).StartedTime
	for _, e := range input.Evictions {
		end := now.Add(evictionsLimit - started.Sub(e.Since))
		check := a.evictionPermitted(ctx, input, e, end)
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

// evictionPermitted returns the check that runs immediately before an eviction request. The check uses the
// policy, the SidecarSet, the RolloutFreezes and the webhook that were read from the API server at most maxAge
// ago. After end, the check returns an error, because a suspended process must not evict pods after another
// process has retried the activity.
func (a *Activities) evictionPermitted(ctx context.Context, input protocol.EvictPodsInput, e protocol.Eviction, end time.Time) func() error {
	set := newRecent(a.Clock, "SidecarSet "+e.SidecarSet.Name, func(ctx context.Context) (string, error) {
		return a.whyNotEvicted(ctx, input, e)
	})
	return func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if a.Clock.Now().After(end) {
			return errChoiceTooOld
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
	if applies, err := stage.PolicyOf(set, policies); err != nil || applies == nil || applies.Name != policy.Name {
		return "RolloutPolicy " + input.Policy.Name + " does not apply any more", err
	}
	freezes, err := a.lists().freezes.since(ctx, now)
	if err != nil {
		return "", err
	}
	installed, err := kube.PodWebhook(ctx, a.Live)
	if err != nil {
		return "", err
	}
	reason, err := a.notEvictable(set, installed, policies, freezes)
	if reason != "" || err != nil {
		return reason, err
	}
	return a.notInjected(ctx, installed, e)
}

// notInjected returns the reason why the webhook would not inject the replacements of the pods of e, or an empty
// string.
func (a *Activities) notInjected(ctx context.Context, installed *admissionregistrationv1.MutatingWebhook, e protocol.Eviction) (string, error) {
	namespace := e.Owner.Namespace
	labels, err := kube.NamespaceLabels(ctx, a.Cache)(namespace)
	if err != nil {
		return "", fmt.Errorf("look up namespace %s: %w", namespace, err)
	}
	webhook := match.NewWebhook(installed, a.SystemNamespace)
	if installed == nil || len(installed.Rules) == 0 || !webhook.Namespace(namespace, labels) {
		return notCalled, nil
	}
	for _, chosen := range e.Pods {
		var pod corev1.Pod
		if err := a.Cache.Get(ctx, client.ObjectKey{Namespace: chosen.Namespace, Name: chosen.Name}, &pod); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("read pod %s: %w", chosen.PodReference, err)
		} else if err == nil && !webhook.Pod(&pod) {
			return notCalled, nil
		}
	}
	return "", nil
}

// evict evicts one pod. evicted reports whether the pod is terminating or gone. Otherwise, rejection is the
// reason why the pod was not evicted. rejection is empty if the pod has changed since the choice, or if the
// choice is too old. evict reads the pod first, because the API server counts a disruption of the
// PodDisruptionBudget before the API server compares the resourceVersion. evict reads the pod again after an
// error, because the request may have evicted the pod.
func (a *Activities) evict(ctx context.Context, chosen protocol.WrittenPod, check func() error) (evicted bool, rejection string, err error) {
	before, err := readPod(ctx, a.Live, chosen.PodReference)
	switch {
	case err != nil:
		return false, "", err
	case ends(before):
		return true, "", nil
	case before.ResourceVersion != chosen.ResourceVersion:
		return false, "", nil
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: chosen.Namespace, Name: chosen.Name}}
	request := &policyv1.Eviction{
		ObjectMeta:    pod.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &chosen.UID, ResourceVersion: &chosen.ResourceVersion}},
	}
	sending, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	_, err = kube.SendIf(sending, check, func(ctx context.Context) error { return a.Evict.Create(ctx, pod, request) })
	if err == nil {
		return true, "", nil
	}
	now, readErr := readPod(ctx, a.Live, chosen.PodReference)
	switch {
	case readErr != nil:
		return false, "", readErr
	case ends(now):
		return true, "", nil
	case apierrors.IsConflict(err) && now.ResourceVersion != chosen.ResourceVersion, errors.Is(err, errChoiceTooOld):
		return false, "", nil
	}
	return false, evictionRejection(err), nil
}

// ends reports whether a pod is terminating or gone. For a pod that is gone, pod is nil.
func ends(pod *corev1.Pod) bool { return pod == nil || pod.DeletionTimestamp != nil }

// evictionRejection returns the reason of a rejected eviction. The API server names the PodDisruptionBudget in a
// cause of the error. For a pod with several PodDisruptionBudgets, the API server responds with status 500.
func evictionRejection(err error) string {
	if errors.Is(err, errEvictionsStopped) {
		return err.Error()
	}
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return cause.Message
	}
	if strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		return "more than one PodDisruptionBudget selects the pod, and the API server does not evict such pods"
	}
	return reason(err)
}
