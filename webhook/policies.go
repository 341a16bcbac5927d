package webhook

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/webhook/pods"
)

const (
	// policyRetryInterval is the time between two attempts to list RolloutPolicies before the webhook is
	// ready. policyCheckInterval is the time between two checks whether the definition of RolloutPolicies
	// has been installed.
	policyRetryInterval = time.Second
	policyCheckInterval = 10 * time.Second
)

// policyWatch feeds the RolloutPolicies to the admission of pods.
//
// An older installation has no CustomResourceDefinition of RolloutPolicies, or no permission to list
// RolloutPolicies. In this case, the webhook serves without policies, and checks again every
// policyCheckInterval. The webhook needs no restart after the definition is installed. The informer is
// added to the cache only after a successful list, because the cache would never be synced without the
// definition.
type policyWatch struct {
	mgr     *kube.Manager
	handler *pods.Handler
	// known is nil until a list of the policies has succeeded, or has shown that RolloutPolicies are not
	// installed. Afterwards, known does not change, so that the webhook remains ready.
	known atomic.Pointer[toolscache.InformerSynced]
}

// watchPolicies adds the watch of RolloutPolicies to a manager. The returned function reports whether the
// policies are known.
func watchPolicies(mgr *kube.Manager, handler *pods.Handler) (toolscache.InformerSynced, error) {
	w := &policyWatch{mgr: mgr, handler: handler}
	if err := mgr.Add(manager.RunnableFunc(w.run)); err != nil {
		return nil, fmt.Errorf("watch RolloutPolicies: %w", err)
	}
	return w.synced, nil
}

func (w *policyWatch) synced() bool {
	known := w.known.Load()
	return known != nil && (*known)()
}

// run opens the watch once the policies can be listed.
func (w *policyWatch) run(ctx context.Context) error {
	for {
		opened, err := w.open(ctx)
		if opened || ctx.Err() != nil {
			return nil
		}
		interval := policyCheckInterval
		if w.known.Load() == nil {
			interval = policyRetryInterval
		}
		if err != nil {
			w.mgr.GetLogger().Error(err, "cannot read RolloutPolicies; trying again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// open opens the watch if the policies can be listed. If the definition of RolloutPolicies or the
// permission to list RolloutPolicies is missing, open sets known and returns false.
func (w *policyWatch) open(ctx context.Context) (opened bool, err error) {
	listing, cancel := context.WithTimeout(ctx, policyCheckInterval)
	defer cancel()
	err = w.mgr.Direct.List(listing, &outriggerv1.RolloutPolicyList{}, client.Limit(1))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		if w.setKnown(func() bool { return true }) {
			w.mgr.GetLogger().Info("serving without RolloutPolicies: their CustomResourceDefinition or the permission to list them is missing; apply config/crd and config/rbac", "cause", err.Error())
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	informer, err := w.mgr.GetCache().GetInformer(ctx, &outriggerv1.RolloutPolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return false, fmt.Errorf("watch RolloutPolicies: %w", err)
	}
	handling, err := informer.AddEventHandler(w.handler.PolicyEventHandler())
	if err != nil {
		return false, fmt.Errorf("watch RolloutPolicies: %w", err)
	}
	w.setKnown(handling.HasSynced)
	return true, nil
}

// setKnown sets known once, so that later changes of the definition do not make the webhook unready. setKnown
// returns true only for the first call.
func (w *policyWatch) setKnown(synced toolscache.InformerSynced) bool {
	return w.known.CompareAndSwap(nil, &synced)
}
