package activities

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// lists contains the recent lists of the objects, other than pods, on which plans depend. All activities of a
// process share the lists, so that the number of rollouts does not change the number of requests.
type lists struct {
	freezes  *recent[[]outriggerv1.RolloutFreeze]
	policies *recent[knownPolicies]
	budgets  *recent[[]policyv1.PodDisruptionBudget]
	nodes    *kube.NodeLabels
}

func (a *Activities) lists() *lists {
	a.listing.Do(func() {
		a.listed = lists{
			freezes:  newRecent(a.Clock, "RolloutFreezes", a.listFreezes),
			policies: newRecent(a.Clock, "RolloutPolicies", a.listPolicies),
			budgets:  newRecent(a.Clock, "PodDisruptionBudgets", a.listBudgets),
			nodes:    kube.NewNodeLabels(a.Live, a.Clock),
		}
	})
	return &a.listed
}

// list lists objects. The end of the activity that needs the list does not cancel the request, because other
// activities may wait for the same list. The request ends after maxAge, because a later answer would be too
// old.
func (a *Activities) list(ctx context.Context, all client.ObjectList) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxAge)
	defer cancel()
	return a.Live.List(ctx, all)
}
