package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

const (
	// lateRenewal and patientRenewal are the times within which the operator has to renew its Lease. lateRenewal
	// is longer than the time between two renewals. patientRenewal also tolerates one failed renewal, and
	// operators of version v0.1.0.
	lateRenewal    = 1500 * time.Millisecond
	patientRenewal = 2500 * time.Millisecond
	// leaseReadInterval is the time between two reads of a Lease that is renewed late.
	leaseReadInterval = 250 * time.Millisecond
	// temporalFaultTime is the time within which the operator usually reports that Temporal refuses
	// connections. If connections to Temporal hang, the report takes up to ten seconds.
	temporalFaultTime = 3 * time.Second
)

// lease is the Lease of the operator.
type lease struct {
	*coordinationv1.Lease
	// silence is the time since the last renewal of the Lease. silence is zero if the operator renews the
	// Lease.
	silence time.Duration
}

// fault returns the part of the installation that does not respond, according to the Lease of the operator. If
// the Lease does not exist or cannot be read, fault returns an empty Fault.
func (c *cluster) fault(ctx context.Context, now time.Time) view.Fault {
	read, err := c.operatorLease(ctx, now, lateRenewal, lateRenewal)
	if err != nil {
		return view.Fault{}
	}
	if read.silence > 0 {
		return c.operatorFault(ctx, read.silence)
	}
	return c.reported(ctx, read)
}

// reported returns the fault that the operator has written into the Lease.
func (c *cluster) reported(ctx context.Context, read lease) view.Fault {
	switch reason, message, _ := strings.Cut(read.Annotations[v1alpha1.FaultAnnotation], ": "); reason {
	case v1alpha1.ReasonTemporalUnavailable:
		return view.Fault{Reason: reason, Message: message + "; " + c.temporalNext(ctx)}
	case v1alpha1.ReasonWorkerUnavailable:
		return view.Fault{Reason: reason, Message: message + ": " + c.podsOf(ctx, "worker")}
	}
	return view.Fault{}
}

// webhookFault returns fault if fault is set. Otherwise, webhookFault returns the fault of the webhook if the
// status of a SidecarSet shows this fault.
func (c *cluster) webhookFault(ctx context.Context, fault view.Fault, sets ...v1alpha1.SidecarSet) view.Fault {
	if fault != (view.Fault{}) {
		return fault
	}
	for i := range sets {
		injected := meta.FindStatusCondition(sets[i].Status.Conditions, v1alpha1.ConditionInjected)
		if injected != nil && injected.Status == metav1.ConditionFalse && injected.Reason == v1alpha1.ReasonWebhookUnavailable {
			cause, _, _ := strings.Cut(injected.Message, v1alpha1.FindPods)
			return view.Fault{Reason: injected.Reason, Message: cause + ": " + c.podsOf(ctx, "webhook")}
		}
	}
	return view.Fault{}
}

// correct replaces fault if the answers of runs contradict fault, because the answers are newer than the Lease
// (SPEC 8.10.5).
func (c *cluster) correct(ctx context.Context, fault view.Fault, runs ...view.RunInput) view.Fault {
	answered := slices.ContainsFunc(runs, func(run view.RunInput) bool { return run.Status != nil })
	silent := slices.ContainsFunc(runs, func(run view.RunInput) bool { return run.NotResponding })
	switch {
	case answered && fault.Reason == v1alpha1.ReasonWorkerUnavailable:
		return view.Fault{}
	case silent && !answered && fault == (view.Fault{}):
		return view.Fault{Reason: view.RunNotResponding, Message: "no worker responds for the run: " + c.podsOf(ctx, "worker")}
	}
	return fault
}

// operatorFault returns a fault that names the Lease that the operator does not renew, and the next command.
func (c *cluster) operatorFault(ctx context.Context, silence time.Duration) view.Fault {
	return view.Fault{Reason: view.OperatorNotResponding, Message: fmt.Sprintf(
		"the operator does not respond, and status may be old: the operator has not renewed Lease %s/%s for %s (after a start, the operator leads within 15s; without --leader-elect, the operator renews no Lease): %s",
		c.systemNamespace, view.OperatorLease, silence.Round(time.Second), c.podsOf(ctx, "operator"))}
}

// operatorLease reads the Lease of the operator. Because the clocks of the cluster and of this machine may
// differ, operatorLease observes a Lease whose renewal time differs from now by trusted or more. If the Lease
// is not renewed within patience, silence is set.
func (c *cluster) operatorLease(ctx context.Context, now time.Time, trusted, patience time.Duration) (lease, error) {
	read := func() (*coordinationv1.Lease, error) {
		found := &coordinationv1.Lease{}
		return found, c.live.Get(ctx, client.ObjectKey{Namespace: c.systemNamespace, Name: view.OperatorLease}, found)
	}
	first, err := read()
	if err != nil || first.Spec.RenewTime == nil || now.Sub(first.Spec.RenewTime.Time).Abs() < trusted {
		return lease{Lease: first}, err
	}
	last := first
	err = observe(patience, leaseReadInterval, func() (renewed bool, err error) {
		last, err = read()
		return err == nil && !last.Spec.RenewTime.Equal(first.Spec.RenewTime), err
	})
	if err != nil || !last.Spec.RenewTime.Equal(first.Spec.RenewTime) {
		return lease{Lease: last}, err
	}
	return lease{last, patience + max(now.Sub(first.Spec.RenewTime.Time), 0)}, nil
}

// reportOfTemporal waits up to temporalFaultTime for a report of the operator that Temporal is unavailable,
// and returns the newest report about Temporal and the workers. known is false if the operator does not
// respond or does not use a Lease.
func (c *cluster) reportOfTemporal(ctx context.Context) (fault view.Fault, known bool) {
	end := time.Now().Add(temporalFaultTime)
	for {
		read, err := c.operatorLease(ctx, time.Now(), 0, patientRenewal)
		if err != nil || read.Spec.RenewTime == nil || read.silence > 0 {
			return view.Fault{}, false
		}
		fault = c.reported(ctx, read)
		if fault.Reason == v1alpha1.ReasonTemporalUnavailable || !time.Now().Before(end) {
			return fault, true
		}
	}
}

// observe calls read every interval until read is done or returns an error, and returns the error. After limit,
// observe does not call read again. A read that is in progress at the limit is not cancelled, and observe uses
// the result of this read.
func observe(limit, interval time.Duration, read func() (done bool, err error)) error {
	for end := time.Now().Add(limit); ; time.Sleep(interval) {
		if done, err := read(); done || err != nil || !time.Now().Before(end) {
			return err
		}
	}
}
