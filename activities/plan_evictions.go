package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/eviction"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// PlanEvictions chooses the pods that a RolloutPolicy evicts next (SPEC §13). It writes nothing. A
// stale cache is an error, and Temporal retries the activity.
func (a *Activities) PlanEvictions(ctx context.Context, input protocol.PlanEvictionsInput) (protocol.EvictionPlan, error) {
	if err := a.Current(); err != nil {
		return protocol.EvictionPlan{}, err
	}
	policies, err := a.policiesSince(ctx, a.Clock.Now())
	if err != nil {
		return protocol.EvictionPlan{}, err
	}
	policy := evictingPolicy(policies, input.Policy)
	if policy == nil {
		return protocol.EvictionPlan{Ended: true, Message: "the policy evicts no pods any more"}, nil
	}
	scan := &evictionScan{Activities: a, policies: policies, policy: policy, sets: map[string]eviction.Set{}, pods: map[types.UID]*eviction.Pod{}, namespaces: map[string]bool{}}
	if err := scan.all(ctx); err != nil {
		return protocol.EvictionPlan{}, err
	}
	return eviction.Next(eviction.Input{State: input.State, Policy: policy, Sets: scan.sets, Pods: scan.sorted(), Now: input.Now}), nil
}

// evictingPolicy returns the policy if it exists and evicts pods.
func evictingPolicy(policies []outriggerv1.RolloutPolicy, reference protocol.PolicyReference) *outriggerv1.RolloutPolicy {
	for i := range policies {
		if p := &policies[i]; p.Name == reference.Name && p.UID == reference.UID && p.DeletionTimestamp == nil && p.Spec.Evicts() {
			return p
		}
	}
	return nil
}

// evictionScan reads the SidecarSets of one policy and their pods from the cache.
type evictionScan struct {
	*Activities
	policies []outriggerv1.RolloutPolicy
	policy   *outriggerv1.RolloutPolicy
	webhook  match.Webhook
	freezes  []outriggerv1.RolloutFreeze
	sets     map[string]eviction.Set
	pods     map[types.UID]*eviction.Pod
	// namespaces tells for which namespaces the API server calls the webhook, as far as it is known.
	namespaces map[string]bool
}

func (s *evictionScan) all(ctx context.Context) error {
	installed, err := kube.PodWebhook(ctx, s.Live)
	if err != nil {
		return err
	}
	if s.freezes, err = s.recentFreezes().since(ctx, s.Clock.Now()); err != nil {
		return err
	}
	s.webhook = match.NewWebhook(installed, s.SystemNamespace)
	var sets v1alpha1.SidecarSetList
	if err := s.Cache.List(ctx, &sets); err != nil {
		return fmt.Errorf("list SidecarSets: %w", err)
	}
	slices.SortFunc(sets.Items, func(a, b v1alpha1.SidecarSet) int { return strings.Compare(a.Name, b.Name) })
	for i := range sets.Items {
		set := &sets.Items[i]
		applies, err := stage.PolicyOf(set, s.policies)
		if err != nil {
			return err
		}
		if applies == nil || applies.Name != s.policy.Name || set.DeletionTimestamp != nil {
			continue
		}
		if err := s.set(ctx, set); err != nil {
			return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
		}
	}
	return nil
}

// set adds one SidecarSet and the pods in its scope.
func (s *evictionScan) set(ctx context.Context, stored *v1alpha1.SidecarSet) error {
	set, err := revision.Completed(stored)
	if err != nil {
		return err
	}
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return err
	}
	injected, err := s.Index.Of(set.Name)
	if err != nil {
		return err
	}
	labels := kube.NamespaceLabels(ctx, s.Cache)
	population, err := rollout.Population(set, injected, labels)
	if err != nil {
		return err
	}
	plan, err := rollout.Next(set, population, nil)
	if err != nil {
		return err
	}
	waits, err := s.waits(set, &plan)
	if err != nil {
		return err
	}
	of := eviction.Set{UID: set.UID, Generation: set.Generation, Waits: waits, MaxUnavailable: plan.MaxUnavailable}
	for i := range population {
		pod := &population[i]
		if pod.UnavailableByUpgrade() {
			of.Unavailable = append(of.Unavailable, controllerOf(pod.Pod))
		}
		added := s.add(pod.Pod, pod.Ready, set.Name, !pod.Updated && !pod.Upgradable)
		if added.Outdated == "" {
			continue
		}
		if called, err := s.called(pod.Pod, labels); err != nil {
			return err
		} else if !called {
			added.Waits = "the API server does not call the webhook for their replacements"
		}
	}
	s.sets[set.Name] = of
	return s.uninjected(set, scope, labels)
}

// called reports whether the API server calls the webhook for the replacement of a pod.
func (s *evictionScan) called(pod *corev1.Pod, labels func(string) (map[string]string, error)) (bool, error) {
	if !s.webhook.Pod(pod) {
		return false, nil
	}
	called, known := s.namespaces[pod.Namespace]
	if !known {
		of, err := labels(pod.Namespace)
		if err != nil {
			return false, fmt.Errorf("look up namespace %s: %w", pod.Namespace, err)
		}
		called = s.webhook.Namespace(pod.Namespace, of)
		s.namespaces[pod.Namespace] = called
	}
	return called, nil
}

// controllerOf returns the uid of the controller of a pod, or of the pod itself.
func controllerOf(pod *corev1.Pod) types.UID {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.UID
	}
	return pod.UID
}

// add adds a pod of a SidecarSet. A pod is ready with the newest content if it is for each of its
// SidecarSets.
func (s *evictionScan) add(pod *corev1.Pod, ready bool, set string, outdated bool) *eviction.Pod {
	known := s.pods[pod.UID]
	if known == nil {
		known = &eviction.Pod{Pod: pod, Ready: true}
		s.pods[pod.UID] = known
	}
	known.Ready = known.Ready && ready
	if outdated && known.Outdated == "" {
		known.Outdated = set
	}
	return known
}

// uninjected adds the pods that match a SidecarSet and were never injected.
func (s *evictionScan) uninjected(set *v1alpha1.SidecarSet, scope match.Scope, labels func(string) (map[string]string, error)) error {
	pods, err := s.Index.In(scope.OneNamespace())
	if err != nil {
		return err
	}
	found, err := rollout.Uninjected(set, pods, s.webhook, labels)
	for _, pod := range found {
		s.add(pod, podIsReady(pod), set.Name, true)
	}
	return err
}

func podIsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waits returns the reason for which no pod may be evicted for a SidecarSet now.
func (s *evictionScan) waits(set *v1alpha1.SidecarSet, plan *rollout.Plan) (string, error) {
	if reason := notEvictable(set); reason != "" {
		return reason, nil
	}
	if plan.Phase != protocol.PhaseComplete {
		return "the rollout of SidecarSet " + set.Name + " has not ended", nil
	}
	if freeze := stage.FreezeFor(set, nil, s.freezes, s.Clock.Now()); freeze != nil {
		return stage.FreezeMessage(freeze), nil
	}
	resolved, err := stage.Resolve(set, nil, s.policies)
	if err != nil {
		return "", err
	}
	closed, _, err := stage.Closed(resolved, s.Clock.Now())
	return closed, err
}

// notEvictable returns the reason for which the SidecarSet itself permits no evictions.
func notEvictable(set *v1alpha1.SidecarSet) string {
	strategy := &set.Spec.UpdateStrategy
	partition := strategy.Partition != nil && strategy.Partition.String() != "0" && strategy.Partition.String() != "0%"
	switch rolled := set.Status.Rollout; {
	case strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "upgrades of SidecarSet " + set.Name + " are off (updateStrategy.type NotUpdate)"
	case set.Spec.InjectionStrategy.Paused:
		return "the injection of SidecarSet " + set.Name + " is paused"
	case strategy.Paused || rolled != nil && rolled.Pause != nil:
		return "SidecarSet " + set.Name + " is paused"
	case partition || strategy.Selector != nil:
		return "updateStrategy.partition or updateStrategy.selector of SidecarSet " + set.Name + " keeps pods at an older version"
	case set.Spec.InjectionStrategy.Revision != nil:
		return "injectionStrategy.revision of SidecarSet " + set.Name + " gives new pods a pinned revision"
	case stage.QuarantineOf(set) != nil:
		return "SidecarSet " + set.Name + " is rolled back"
	case set.Status.ObservedGeneration != set.Generation || ptr.Deref(rolled, v1alpha1.RolloutStatus{}).Generation != set.Generation:
		return "the rollout of SidecarSet " + set.Name + " has not begun"
	}
	return ""
}

func (s *evictionScan) sorted() []eviction.Pod {
	pods := make([]eviction.Pod, 0, len(s.pods))
	for _, pod := range s.pods {
		pods = append(pods, *pod)
	}
	slices.SortFunc(pods, func(a, b eviction.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return pods
}
