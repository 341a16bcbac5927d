package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

// renewTime is longer than the time between two renewals of the Lease. It is also longer than the time
// that the operator needs to observe a new generation.
const renewTime = 5 * time.Second

// operator checks that the operator renews its Lease, and has observed all SidecarSets.
func (i *installation) operator(ctx context.Context) (string, error) {
	lease := "Lease " + i.systemNamespace + "/" + view.OperatorLease
	var behind *v1alpha1.SidecarSet
	var unread error
	var observed sync.WaitGroup
	observed.Go(func() { behind, unread = i.behind(ctx) })
	holder, renewed, err := i.renewed(ctx, renewTime)
	observed.Wait()
	if err != nil && !apierrors.IsNotFound(err) {
		return "", i.failure(err, "read "+lease)
	}
	switch {
	case unread != nil:
		return "", i.failure(unread, "list SidecarSets")
	case behind != nil:
		return "", fmt.Errorf("generation %d of SidecarSet %s is not observed for %s: %s", behind.Generation, behind.Name, renewTime, i.podsOf(ctx, "operator"))
	case err != nil:
		if err := i.systemNamespaceExists(ctx); err != nil {
			return "", err
		}
		return "", unknownError{"no " + lease + ": the operator runs without --leader-elect, or not at all; the newest generations were observed"}
	case !renewed:
		return "", fmt.Errorf("nobody renews %s: the operator is down, or runs without --leader-elect now: %s", lease, i.podsOf(ctx, "operator"))
	}
	return holder + " leads, and has observed all SidecarSets", nil
}

// systemNamespaceExists returns an error if the system namespace does not exist.
func (i *installation) systemNamespaceExists(ctx context.Context) error {
	if i.lacksNamespace(ctx, i.systemNamespace) {
		return fmt.Errorf("namespace %s does not exist: name the namespace of the operator with --system-namespace", i.systemNamespace)
	}
	return nil
}

// behind returns a SidecarSet whose newest generation the operator has not observed after
// renewTime, or nil.
func (i *installation) behind(ctx context.Context) (behind *v1alpha1.SidecarSet, err error) {
	err = observe(renewTime, func() (bool, error) {
		var sets v1alpha1.SidecarSetList
		if err := i.List(ctx, &sets); err != nil {
			return false, err
		}
		at := slices.IndexFunc(sets.Items, func(set v1alpha1.SidecarSet) bool { return set.Status.ObservedGeneration != set.Generation })
		if at < 0 {
			behind = nil
			return true, nil
		}
		behind = &sets.Items[at]
		return false, nil
	})
	return behind, err
}
