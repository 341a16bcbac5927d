package activities

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// claim is a run's right to upgrade pods of a set: it holds the set's Lease.
// Temporal knows one open run of a set, but a run that was terminated or reset
// leaves activities that go on for a while. No times are compared: the holder
// looks at the Lease again and again, and whoever takes over names itself
// first, waits, and holds it then.
type claim struct {
	*Activities
	set protocol.SetReference
	run string
}

// held reports whether the run holds the Lease.
func (c *claim) held(ctx context.Context) (bool, error) {
	lease, err := c.read(ctx)
	return err == nil && lease != nil && holder(lease) == c.run && nextHolder(lease) == "", err
}

// take makes the run the holder. It reports whether that took the Lease from
// another run, which may have written until a moment ago.
func (c *claim) take(ctx context.Context) (takenOver bool, err error) {
	lease, err := c.read(ctx)
	if err != nil {
		return false, err
	}
	switch {
	case lease == nil:
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.SystemNamespace, Name: c.name()}}
		lease.Spec.HolderIdentity = &c.run
		return false, c.wrote("create", c.Writer.Create(ctx, lease))
	case holder(lease) == c.run && nextHolder(lease) == "":
		return false, nil
	case holder(lease) == "":
		return false, c.hold(ctx, lease)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.NextHolderAnnotation, c.run)
	if err := c.update(ctx, lease); err != nil {
		return false, err
	}
	select {
	case <-c.Clock.After(takeoverDelay):
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return true, c.hold(ctx, lease)
}

func (c *claim) hold(ctx context.Context, lease *coordinationv1.Lease) error {
	lease.Spec.HolderIdentity = &c.run
	delete(lease.Annotations, v1alpha1.NextHolderAnnotation)
	return c.update(ctx, lease)
}

// release lets the next run begin at once. Of a set that is gone, nothing stays.
func (c *claim) release(ctx context.Context, gone bool) error {
	lease, err := c.read(ctx)
	if err != nil || lease == nil || holder(lease) != c.run {
		return err
	}
	if gone {
		unchanged := client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
		return c.wrote("delete", client.IgnoreNotFound(c.Writer.Delete(ctx, lease, unchanged)))
	}
	lease.Spec.HolderIdentity = nil
	delete(lease.Annotations, v1alpha1.NextHolderAnnotation)
	return c.update(ctx, lease)
}

// update fails when somebody else has written the Lease since it was read.
func (c *claim) update(ctx context.Context, lease *coordinationv1.Lease) error {
	return c.wrote("update", c.Writer.Update(ctx, lease))
}

func (c *claim) wrote(verb string, err error) error {
	if err != nil {
		return fmt.Errorf("%s Lease %s/%s: %w", verb, c.SystemNamespace, c.name(), err)
	}
	return nil
}

// read returns nil when there is no Lease yet.
func (c *claim) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := c.Live.Get(ctx, types.NamespacedName{Namespace: c.SystemNamespace, Name: c.name()}, lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Lease %s/%s: %w", c.SystemNamespace, c.name(), err)
	}
	return lease, nil
}

func (c *claim) name() string { return leasePrefix + c.set.Name }

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func nextHolder(lease *coordinationv1.Lease) string {
	return lease.Annotations[v1alpha1.NextHolderAnnotation]
}
