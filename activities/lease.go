package activities

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// takeoverDelay is how long a run waits before it upgrades pods in the place
	// of one that did not say that it had ended: until the other has looked, and
	// what it had on the wire has arrived.
	takeoverDelay = maxAge + time.Second
	leasePrefix   = "outrigger-rollout-"
)

// rolloutLease is the Kubernetes Lease of a set's rollout, which the run that
// upgrades its pods holds. Temporal has one open run of a set, but a run that was
// terminated or reset leaves activities that go on for a while. No times are
// compared: the holder looks at the Lease again and again, and whoever takes over
// names itself first, waits, and holds it then.
type rolloutLease struct {
	live      client.Reader
	writer    client.Writer
	clock     clock.Clock
	namespace string
	set       protocol.SetReference
	// run is the identity to hold it with.
	run string
	// podUID and task say which process has which batch in hand, for the process that
	// comes after it; empty where none could know.
	podUID string
	task   []byte
}

func (a *Activities) lease(set protocol.SetReference, run string) *rolloutLease {
	return &rolloutLease{live: a.Live, writer: a.Writer, clock: a.Clock, namespace: a.SystemNamespace, set: set, run: run, podUID: a.PodUID}
}

// leaseIdentity names who holds the set's Lease: runs that began before there were
// Leases do not say.
func leaseIdentity(ctx context.Context, run string) string {
	if run == "" {
		return activity.GetInfo(ctx).WorkflowExecution.RunID
	}
	return run
}

// held reports whether the run holds the Lease.
func (l *rolloutLease) held(ctx context.Context) (bool, error) {
	lease, err := l.read(ctx)
	return err == nil && lease != nil && holder(lease) == l.run && nextHolder(lease) == "", err
}

// acquire makes the run the holder. Before it takes the Lease from another run,
// which writes no more then, it calls takeOver.
func (l *rolloutLease) acquire(ctx context.Context, takeOver func(context.Context) error) error {
	lease, err := l.read(ctx)
	if err != nil {
		return err
	}
	switch {
	case lease == nil:
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name()}}
		lease.Spec.HolderIdentity = &l.run
		l.noteTask(lease)
		return l.wrapped("create", l.writer.Create(ctx, lease))
	case holder(lease) == l.run && nextHolder(lease) == "":
		if !l.noteTask(lease) {
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
	case <-l.clock.After(takeoverDelay):
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
	delete(lease.Annotations, v1alpha1.NextHolderAnnotation)
	l.noteTask(lease)
	return l.update(ctx, lease)
}

// noteTask writes into the Lease who has which batch in hand, and reports whether that is
// new.
func (l *rolloutLease) noteTask(lease *coordinationv1.Lease) (changed bool) {
	token := base64.StdEncoding.EncodeToString(l.task)
	if l.podUID == "" || token == "" {
		return false
	}
	changed = lease.Annotations[v1alpha1.PodUIDAnnotation] != l.podUID || lease.Annotations[v1alpha1.TaskTokenAnnotation] != token
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.PodUIDAnnotation, l.podUID)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.TaskTokenAnnotation, token)
	return changed
}

// release lets the next run begin at once. Of a set that is gone, nothing stays.
func (l *rolloutLease) release(ctx context.Context, gone bool) error {
	lease, err := l.read(ctx)
	if err != nil || lease == nil || holder(lease) != l.run {
		return err
	}
	if gone {
		unchanged := client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
		return l.wrapped("delete", client.IgnoreNotFound(l.writer.Delete(ctx, lease, unchanged)))
	}
	lease.Spec.HolderIdentity = nil
	delete(lease.Annotations, v1alpha1.NextHolderAnnotation)
	return l.update(ctx, lease)
}

// update fails when somebody else has written the Lease since it was read.
func (l *rolloutLease) update(ctx context.Context, lease *coordinationv1.Lease) error {
	return l.wrapped("update", l.writer.Update(ctx, lease))
}

func (l *rolloutLease) wrapped(verb string, err error) error {
	if err != nil {
		return fmt.Errorf("%s Lease %s/%s: %w", verb, l.namespace, l.name(), err)
	}
	return nil
}

// read returns nil when there is no Lease yet.
func (l *rolloutLease) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := l.live.Get(ctx, types.NamespacedName{Namespace: l.namespace, Name: l.name()}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Lease %s/%s: %w", l.namespace, l.name(), err)
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
