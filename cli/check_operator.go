package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

const (
	// observeTime is longer than the time that the operator needs to observe a new generation.
	observeTime = 5 * time.Second
	// observeInterval is the time between two reads of SidecarSets during observeTime.
	observeInterval = 500 * time.Millisecond
)

// operator checks that the operator renews its Lease, and has observed all SidecarSets.
func (i *installation) operator(ctx context.Context) (string, error) {
	name := "Lease " + i.systemNamespace + "/" + view.OperatorLease
	lease, err := i.operatorLease(ctx, i.shared.now(), 0, patientRenewal)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", i.failure(err, "read "+name)
	}
	if lease.silence > 0 {
		return "", errors.New(i.operatorFault(ctx, lease.silence).Message)
	}
	behind, unread := i.behind(ctx)
	switch {
	case unread != nil:
		return "", i.failure(unread, "list SidecarSets")
	case behind != nil:
		return "", fmt.Errorf("the operator did not observe generation %d of SidecarSet %s within %s: %s", behind.Generation, behind.Name, observeTime, i.podsOf(ctx, "operator"))
	case err != nil:
		if err := i.systemNamespaceExists(ctx); err != nil {
			return "", err
		}
		return "", unknownError{"no " + name + ": the operator runs without --leader-elect, or not at all; the newest generations were observed"}
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "") + " leads, and has observed all SidecarSets", nil
}

// systemNamespaceExists returns an error if the system namespace does not exist.
func (i *installation) systemNamespaceExists(ctx context.Context) error {
	if i.lacksNamespace(ctx, i.systemNamespace) {
		return fmt.Errorf("namespace %s does not exist: name the namespace of the operator with --system-namespace", i.systemNamespace)
	}
	return nil
}

// behind waits up to observeTime until the operator has observed the newest generation of each SidecarSet.
// behind then returns a SidecarSet whose newest generation is not observed, or nil.
func (i *installation) behind(ctx context.Context) (behind *v1alpha1.SidecarSet, err error) {
	err = observe(observeTime, observeInterval, func() (bool, error) {
		var sets v1alpha1.SidecarSetList
		if err := i.List(ctx, &sets); err != nil {
			return false, err
		}
		at := slices.IndexFunc(sets.Items, notObserved)
		if at < 0 {
			behind = nil
			return true, nil
		}
		behind = &sets.Items[at]
		return false, nil
	})
	return behind, err
}

// notObserved reports whether the operator has not observed the newest generation of a SidecarSet. The operator
// ignores a SidecarSet that is being deleted. For an invalid generation, an operator of an earlier release sets
// only the conditions, and not observedGeneration.
func notObserved(set v1alpha1.SidecarSet) bool {
	invalid := set.ProgressingReason() == v1alpha1.ReasonInvalid
	return set.DeletionTimestamp == nil && set.Status.ObservedGeneration != set.Generation && !invalid
}
