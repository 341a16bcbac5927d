package activities

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// lists caches the lists of the objects other than pods that plans need. All activities of a process share the
// lists, so that the number of requests does not grow with the number of rollouts.
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

// list lists objects. The cancellation of ctx does not cancel the request, because other activities may wait for
// the same list. The request times out after maxAge, because a later response would be too old.
func (a *Activities) list(ctx context.Context, all client.ObjectList) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxAge)
	defer cancel()
	return a.Live.List(ctx, all)
}
