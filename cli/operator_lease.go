package cli

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/cli/view"
)

const (
	// leaseDuration is the duration of the Lease of the operator. A Lease that the operator released
	// has a shorter one.
	leaseDuration = 15 * time.Second
	// renewInterval is longer than the time between two renewals of the Lease.
	renewInterval = 3 * time.Second
)

// operatorSilent reports whether nobody has renewed the Lease of the operator for the duration of the
// Lease. It returns false without a Lease, and if the Lease cannot be read. No clock of the cluster is
// compared with the clock of this machine: a Lease that looks old is observed for renewInterval.
func (c *cluster) operatorSilent(ctx context.Context, now time.Time) bool {
	lease, err := c.operatorLease(ctx)
	if err != nil || lease.Spec.RenewTime == nil {
		return false
	}
	valid := leaseDuration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		valid = time.Duration(*seconds) * time.Second
	}
	if now.Sub(lease.Spec.RenewTime.Time).Abs() <= valid {
		return false
	}
	_, renewed, err := c.renewed(ctx, renewInterval)
	return err == nil && !renewed
}

func (c *cluster) operatorLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := c.live.Get(ctx, client.ObjectKey{Namespace: c.systemNamespace, Name: view.OperatorLease}, lease)
	return lease, err
}

// renewed waits until the Lease is renewed, at most for a limit, and returns its holder.
func (c *cluster) renewed(ctx context.Context, limit time.Duration) (holder string, renewed bool, err error) {
	var first *metav1.MicroTime
	err = observe(limit, func() (bool, error) {
		lease, err := c.operatorLease(ctx)
		if err != nil {
			return false, err
		}
		if first == nil {
			first = lease.Spec.RenewTime
		}
		holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		renewed = !lease.Spec.RenewTime.Equal(first)
		return renewed, nil
	})
	return holder, renewed, err
}

// observe repeats a read until it is done, at most for a limit. A read that is in progress at the end of
// the limit is not cancelled, so that its result counts.
func observe(limit time.Duration, read func() (done bool, err error)) error {
	for end := time.Now().Add(limit); ; time.Sleep(500 * time.Millisecond) {
		if done, err := read(); done || err != nil || !time.Now().Before(end) {
			return err
		}
	}
}
