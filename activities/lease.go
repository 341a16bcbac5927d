package activities

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// takeoverDelay is the time that a run waits before the run takes over a Lease that the holder did not
	// release. During this time, the holder reads the Lease again and stops its writes, and the last requests of
	// the holder arrive.
	takeoverDelay = maxAge + time.Second
	leasePrefix   = v1alpha1.RolloutLeasePrefix
	// cleanUpHolder is the holder of the Lease of a deleted SidecarSet during the removal of the Lease.
	cleanUpHolder = "tidying-worker"
)

// rolloutLease is the Kubernetes Lease of a rollout. Only the holder of the Lease upgrades and resets
// pods. Temporal allows one open run of a SidecarSet, but the activities of a terminated or reset run continue
// for a while. Before each write, the holder checks a copy of the Lease that is at most maxAge old. A run that
// takes over the Lease first writes the identity of the run into the Lease as the next holder, waits for
// takeoverDelay, and then becomes the holder. A takeover therefore does not need synchronized clocks.
type rolloutLease struct {
	*Activities
	set protocol.SetReference
	// run is the identity of the holder.
	run string
	// task is the token of the activity task that this process has claimed. The Lease contains task and PodUID,
	// so that the next process in the same pod can release the task.
	task []byte
	// resets is set for a batch that only resets pods. After a takeover by such a batch, the run stays recorded
	// as the next holder, so that the first upgrade batch of the run also takes the Lease over and waits for the
	// writes of the previous holder, which the cache of the worker of this upgrade batch may not show yet.
	resets bool
}

func (a *Activities) lease(set protocol.SetReference, run string) *rolloutLease {
	return &rolloutLease{Activities: a, set: set, run: run}
}

// leaseIdentity returns the identity of a run as a holder of the Lease. If run is empty, leaseIdentity
// returns the id of the run that executes the activity.
func leaseIdentity(ctx context.Context, run string) string {
	if run == "" {
		return activity.GetInfo(ctx).WorkflowExecution.RunID
	}
	return run
}

// held reports whether the run is the holder of the Lease, and no other run is taking over the Lease. A batch of
// resets without the id of its run, such as a batch of an earlier release, needs no Lease.
func (l *rolloutLease) held(ctx context.Context) (bool, error) {
	if l.resets && l.run == "" {
		return true, nil
	}
	lease, err := l.read(ctx)
	return err == nil && lease != nil && l.holds(lease), err
}

func (l *rolloutLease) holds(lease *coordinationv1.Lease) bool {
	next := nextHolder(lease)
	return holder(lease) == l.run && (next == "" || l.resets && next == l.run)
}

// acquire makes the run the holder of the Lease, and creates the Lease if the Lease does not exist. If another
// run is the holder, or is taking over the Lease, acquire records the run as the next holder, and waits for
// takeoverDelay. After this time, the other run writes no pods. acquire then calls takeOver, and makes the run
// the holder only if takeOver succeeds.
func (l *rolloutLease) acquire(ctx context.Context, takeOver func(context.Context) error) error {
	lease, err := l.read(ctx)
	if err != nil {
		return err
	}
	switch {
	case lease == nil:
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.SystemNamespace, Name: l.name()}}
		lease.Spec.HolderIdentity = &l.run
		l.recordTask(lease)
		return l.wrapped("create", l.Writer.Create(ctx, lease))
	case l.holds(lease):
		if !l.recordTask(lease) {
			return nil
		}
		return l.update(ctx, lease)
	case holder(lease) == "":
		return l.hold(ctx, lease)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.NextHolderAnnotation, l.run)
	if err := l.update(ctx, lease); err != nil {
		return err
	}
	select {
	case <-l.Clock.After(takeoverDelay):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := takeOver(ctx); err != nil {
		return err
	}
	return l.hold(ctx, lease)
}

func (l *rolloutLease) hold(ctx context.Context, lease *coordinationv1.Lease) error {
	lease.Spec.HolderIdentity = &l.run
	// hold removes the owner, so that the Lease is not garbage collected with the SidecarSet. While write
	// requests of the run are in flight, a run of a recreated SidecarSet must find this Lease and wait.
	lease.OwnerReferences = nil
	if !l.resets || nextHolder(lease) != l.run {
		delete(lease.Annotations, v1alpha1.NextHolderAnnotation)
	}
	l.recordTask(lease)
	return l.update(ctx, lease)
}

// recordTask records the claimed activity task in the Lease, and reports whether the Lease
// changed.
func (l *rolloutLease) recordTask(lease *coordinationv1.Lease) (changed bool) {
	token := base64.StdEncoding.EncodeToString(l.task)
	if l.PodUID == "" || token == "" {
		return false
	}
	changed = lease.Annotations[v1alpha1.PodUIDAnnotation] != l.PodUID || lease.Annotations[v1alpha1.TaskTokenAnnotation] != token
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.PodUIDAnnotation, l.PodUID)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.TaskTokenAnnotation, token)
	return changed
}

// release removes the holder from the Lease, so that the next run begins immediately. If the
// SidecarSet is gone, release deletes the Lease. Otherwise, the SidecarSet becomes the owner of
// the Lease, so that the Lease is garbage collected with the SidecarSet.
func (l *rolloutLease) release(ctx context.Context, gone bool) error {
	lease, err := l.read(ctx)
	if err != nil || lease == nil || holder(lease) != l.run {
		return err
	}
	if gone {
		return l.remove(ctx, lease)
	}
	lease.Spec.HolderIdentity = nil
	delete(lease.Annotations, v1alpha1.NextHolderAnnotation)
	return l.ownBySet(ctx, lease)
}

func (l *rolloutLease) ownBySet(ctx context.Context, lease *coordinationv1.Lease) error {
	lease.OwnerReferences = l.owners()
	return l.update(ctx, lease)
}

func (l *rolloutLease) owners() []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "SidecarSet", Name: l.set.Name, UID: l.set.UID,
	}}
}

func (l *rolloutLease) remove(ctx context.Context, lease *coordinationv1.Lease) error {
	unchanged := client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
	return l.wrapped("delete", client.IgnoreNotFound(l.Writer.Delete(ctx, lease, unchanged)))
}

// removeOrphan removes the Lease of a deleted SidecarSet. Write requests of the holder may still be in flight.
// A rollout of a new SidecarSet with the same name must not start before these requests have arrived.
// removeOrphan therefore acquires the Lease before the removal.
func (l *rolloutLease) removeOrphan(ctx context.Context, lease *coordinationv1.Lease) error {
	if holder(lease) == "" {
		return l.remove(ctx, lease)
	}
	if err := l.acquire(ctx, func(context.Context) error { return nil }); err != nil {
		return err
	}
	return l.release(ctx, true)
}

// CleanUpLeases removes the Leases of deleted SidecarSets, and sets the owner of Leases without a holder. Leases
// of earlier releases have no owner, and the Lease of a terminated run still has a holder.
func (a *Activities) CleanUpLeases(ctx context.Context) error {
	leases := &coordinationv1.LeaseList{}
	if err := a.Live.List(ctx, leases, client.InNamespace(a.SystemNamespace)); err != nil {
		return fmt.Errorf("list Leases in %s: %w", a.SystemNamespace, err)
	}
	var failed []error
	for i := range leases.Items {
		lease := &leases.Items[i]
		name, ofRollout := strings.CutPrefix(lease.Name, leasePrefix)
		if !ofRollout || len(lease.OwnerReferences) > 0 {
			continue
		}
		failed = append(failed, a.cleanUpLease(ctx, name, lease))
	}
	return errors.Join(failed...)
}

func (a *Activities) cleanUpLease(ctx context.Context, name string, lease *coordinationv1.Lease) error {
	set := &v1alpha1.SidecarSet{}
	err := a.Live.Get(ctx, types.NamespacedName{Name: name}, set)
	of := a.lease(protocol.SetReference{Name: name, UID: set.UID}, cleanUpHolder)
	switch {
	case apierrors.IsNotFound(err):
		err = of.removeOrphan(ctx, lease)
	case err == nil && holder(lease) == "":
		err = of.ownBySet(ctx, lease)
	}
	// A conflict means that another worker or a run has changed the Lease since the read.
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// update writes the Lease. If the Lease has changed since the last read, update returns a conflict error.
func (l *rolloutLease) update(ctx context.Context, lease *coordinationv1.Lease) error {
	return l.wrapped("update", l.Writer.Update(ctx, lease))
}

func (l *rolloutLease) wrapped(verb string, err error) error {
	if err != nil {
		return fmt.Errorf("%s Lease %s/%s: %w", verb, l.SystemNamespace, l.name(), err)
	}
	return nil
}

// read returns the Lease, or nil if there is no Lease.
func (l *rolloutLease) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := l.Live.Get(ctx, types.NamespacedName{Namespace: l.SystemNamespace, Name: l.name()}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Lease %s/%s: %w", l.SystemNamespace, l.name(), err)
	}
	return lease, nil
}

func (l *rolloutLease) name() string { return leasePrefix + l.set.Name }

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func nextHolder(lease *coordinationv1.Lease) string {
	return lease.Annotations[v1alpha1.NextHolderAnnotation]
}
