package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

const (
	// A deleted SidecarSet is requeued after firstCleanup if a pod could not be written. The
	// delay doubles with each further failure, up to lastCleanup.
	firstCleanup = time.Second
	lastCleanup  = 5 * time.Minute
)

// NewDeletedSets returns a queue of names of SidecarSets for CleanUp.
func NewDeletedSets() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstCleanup, lastCleanup))
}

// CleanUp removes the entries of deleted SidecarSets from the condition SidecarSetUpgradable of pods (SPEC §7.2),
// until ctx ends. A deleted SidecarSet has no run that removes the entries. At the start, CleanUp queues every
// SidecarSet that has an entry in a condition, because a SidecarSet may have been deleted while no worker ran.
// Several workers may run CleanUp concurrently. A worker does nothing if another worker has removed the entry.
func (a *Activities) CleanUp(ctx context.Context) error {
	pods, err := a.Index.In("")
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, set := range podstate.BlockedSets(pod) {
			a.Deleted.Add(set)
		}
	}
	defer context.AfterFunc(ctx, a.Deleted.ShutDown)()
	for {
		set, over := a.Deleted.Get()
		if over {
			return nil
		}
		if err := a.cleanUp(ctx, set); err != nil {
			log.FromContext(ctx).Info("cannot remove a deleted SidecarSet from the conditions of its pods; retrying", "sidecarset", set, "cause", err.Error())
			a.Deleted.AddRateLimited(set)
		} else {
			a.Deleted.Forget(set)
		}
		a.Deleted.Done(set)
	}
}

// cleanUp removes the entries of a SidecarSet from the conditions of its pods if the SidecarSet is deleted.
// cleanUp reads the pods before the SidecarSet. If the SidecarSet is recreated between the two reads and the new
// run writes an entry, the resourceVersions of the pods change, and the write of cleanUp fails.
func (a *Activities) cleanUp(ctx context.Context, set string) error {
	pods, err := a.Index.Of(set)
	if err != nil {
		return err
	}
	err = a.Live.Get(ctx, types.NamespacedName{Name: set}, &v1alpha1.SidecarSet{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read SidecarSet %s: %w", set, err)
	}
	writer := a.writer(changeCondition)
	var failed []error
	for _, pod := range pods {
		if condition, changed := podstate.ConditionWithoutSet(pod, set, metav1.NewTime(a.Clock.Now())); changed {
			failed = append(failed, writer.patchCondition(ctx, pod, condition))
		}
	}
	return errors.Join(failed...)
}

// patchCondition writes a condition of a pod, unless the pod is gone.
func (w *writer) patchCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	decided := patchCondition(pod, condition)
	if decided.rejection != nil {
		return decided.rejection
	}
	reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	err := w.traced(ctx, reference, func(ctx context.Context) error { return w.patchStatus(ctx, pod.DeepCopy(), decided.patch) })
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("write pod %s: %s", reference, reason(err))
}
