package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/activity"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/eviction"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// PlanEvictions chooses the pods that a RolloutPolicy evicts next (SPEC §13). PlanEvictions writes nothing. If
// the cache is stale, PlanEvictions returns an error, and Temporal retries the activity.
func (a *Activities) PlanEvictions(ctx context.Context, input protocol.PlanEvictionsInput) (protocol.EvictionPlan, error) {
	defer keepHeartbeating(ctx, a.Clock)()
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
	scan := &evictionScan{Activities: a, policies: policies, policy: policy, state: &input.State, sets: map[string]eviction.Set{}, pods: map[types.UID]*eviction.Pod{}, namespaces: map[string]bool{}, terminating: map[types.UID]bool{}, terminatingOf: map[protocol.Owner]int{}, stuck: map[protocol.Owner]bool{}}
	if err := scan.read(ctx); err != nil {
		return protocol.EvictionPlan{}, err
	}
	late := eviction.Late(&input.State, input.Now)
	plan := eviction.Next(eviction.Input{
		State: input.State, Policy: policy, Sets: scan.sets, Pods: scan.sorted(), Terminating: scan.terminating, TerminatingOf: scan.terminatingOf, Stuck: scan.stuck,
		Replicas: a.replicas(ctx, late), ReadyOf: readyOf(scan.all, late), Now: input.Now,
	})
	for i := range plan.Evict {
		plan.Evict[i].Since = activity.GetInfo(ctx).StartedTime
	}
	return plan, nil
}

// readyOf counts the ready pods of each owner in all, including pods that no SidecarSet selects. If late is
// empty, readyOf counts nothing, because only late evictions need the counts.
func readyOf(all []*corev1.Pod, late []protocol.Eviction) map[protocol.Owner]int {
	ready := map[protocol.Owner]int{}
	if len(late) == 0 {
		return ready
	}
	for _, pod := range all {
		if pod.DeletionTimestamp == nil && podstate.Ready(pod) {
			ready[eviction.OwnerOf(pod)]++
		}
	}
	return ready
}

// replicas reads the replicas of the owners of late evictions. An owner that is gone has 0 replicas. The result
// does not contain owners of APIs other than apps/v1, or owners that cannot be read.
func (a *Activities) replicas(ctx context.Context, late []protocol.Eviction) map[protocol.Owner]int {
	read := map[protocol.Owner]int{}
	for i := range late {
		e := &late[i]
		if e.Controller.APIVersion != appsv1.SchemeGroupVersion.String() {
			continue
		}
		replicas, known, err := a.replicasOf(ctx, e.Owner.Namespace, e.Owner.Kind, e.Owner.Name)
		if apierrors.IsNotFound(err) && e.Owner.Kind != e.Controller.Kind {
			// e.Owner is a Deployment whose name is derived from the name of the ReplicaSet. The ReplicaSet may
			// have an owner of another kind.
			replicas, known, err = a.replicasOf(ctx, e.Owner.Namespace, e.Controller.Kind, e.Controller.Name)
		}
		switch {
		case apierrors.IsNotFound(err):
			read[e.Owner] = 0
		case err != nil:
			activity.GetLogger(ctx).Warn("the owner of evicted pods cannot be read", "cause", err.Error())
		case known:
			read[e.Owner] = replicas
		}
	}
	return read
}

func (a *Activities) replicasOf(ctx context.Context, namespace, kind, name string) (replicas int, known bool, err error) {
	return kube.Replicas(ctx, a.Live, appsv1.SchemeGroupVersion.WithKind(kind), client.ObjectKey{Namespace: namespace, Name: name})
}

// evictingPolicy returns the policy of reference if the policy exists and evicts pods, and nil otherwise.
func evictingPolicy(policies []outriggerv1.RolloutPolicy, reference protocol.PolicyReference) *outriggerv1.RolloutPolicy {
	for i := range policies {
		if p := &policies[i]; p.Name == reference.Name && p.UID == reference.UID && p.DeletionTimestamp == nil && p.Spec.Evicts() {
			return p
		}
	}
	return nil
}

// notCalled is the reason why pods are not evicted if the webhook would not inject the replacements.
const notCalled = "the API server does not call the webhook for their replacements"

// evictionScan reads the SidecarSets of one policy and their pods from the cache.
type evictionScan struct {
	*Activities
	policies []outriggerv1.RolloutPolicy
	policy   *outriggerv1.RolloutPolicy
	// installed is the registered webhook for pods, or nil if no webhook is registered. webhook contains the
	// selectors of installed.
	installed *admissionregistrationv1.MutatingWebhook
	webhook   match.Webhook
	freezes   []outriggerv1.RolloutFreeze
	sets      map[string]eviction.Set
	pods      map[types.UID]*eviction.Pod
	// namespaces contains, for each namespace that was looked up, whether the API server calls the webhook for
	// its pods.
	namespaces map[string]bool
	// all contains all cached pods. terminating contains the pods that are being deleted, and terminatingOf
	// counts the terminating pods by owner.
	all           []*corev1.Pod
	terminating   map[types.UID]bool
	terminatingOf map[protocol.Owner]int
	// stuck is true for the owners of a pod that has been terminating for too long.
	stuck map[protocol.Owner]bool
	// state is the state of the evictions before the plan.
	state *protocol.EvictionState
}

func (s *evictionScan) read(ctx context.Context) error {
	var err error
	if s.installed, err = kube.PodWebhook(ctx, s.Live); err != nil {
		return err
	}
	if s.freezes, err = s.lists().freezes.since(ctx, s.Clock.Now()); err != nil {
		return err
	}
	s.webhook = match.NewWebhook(s.installed, s.SystemNamespace)
	if s.all, err = s.Index.In(""); err != nil {
		return err
	}
	for _, pod := range s.all {
		if pod.DeletionTimestamp != nil {
			s.terminating[pod.UID] = true
			owner := eviction.OwnerOf(pod)
			s.terminatingOf[owner]++
			s.stuck[owner] = s.stuck[owner] || eviction.IsStuck(pod, s.Clock.Now())
		}
	}
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
			// The SidecarSet may violate a validation rule that is newer than the SidecarSet, or the cache may
			// not contain a new namespace yet. The pods of other SidecarSets can still be evicted.
			s.sets[set.Name] = eviction.Set{UID: set.UID, Generation: set.Generation, Waits: "the pods of SidecarSet " + set.Name + " are not known: " + err.Error(), Unknown: true}
			activity.GetLogger(ctx).Warn("no pods are evicted for a SidecarSet", "sidecarset", set.Name, "cause", err.Error())
		}
	}
	s.markNotCalled(kube.NamespaceLabels(ctx, s.Cache))
	return nil
}

// markNotCalled sets Waits of the outdated pods if the API server does not call the webhook for their
// replacements, or if the namespace of the pod cannot be looked up. The lookup fails if a namespace was removed,
// but its pods remain.
func (s *evictionScan) markNotCalled(labels func(string) (map[string]string, error)) {
	for _, pod := range s.pods {
		if len(pod.Outdated) == 0 {
			continue
		}
		switch called, err := s.called(pod.Pod, labels); {
		case err != nil:
			pod.Waits = err.Error()
		case !called:
			pod.Waits = notCalled
		}
	}
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
	of := eviction.Set{UID: set.UID, Generation: set.Generation, Hash: set.Annotations[v1alpha1.HashAnnotation], Waits: waits}
	if of.Restored, err = s.restored(ctx, set); err != nil {
		return err
	}
	others, err := s.notMatched(set, scope.OneNamespace(), injected, labels)
	if err != nil {
		return err
	}
	if of.MaxUnavailable, err = rollout.MaxUnavailable(&set.Spec.UpdateStrategy, len(population)+len(others)); err != nil {
		return err
	}
	// The pods are added after all steps that can fail, so a SidecarSet with an error adds no pods.
	for i := range population {
		pod := &population[i]
		if pod.UnavailableByUpgrade() {
			of.Unavailable = append(of.Unavailable, eviction.OwnerOf(pod.Pod))
		}
		s.add(pod.Pod, set.Name, !pod.Updated && !pod.Upgradable)
	}
	for _, pod := range others {
		s.add(pod, set.Name, true)
	}
	s.sets[set.Name] = of
	return nil
}

// restored reports whether the state of the evictions contains a newer generation of a SidecarSet than the API
// server, as after a restore of etcd.
func (s *evictionScan) restored(ctx context.Context, set *v1alpha1.SidecarSet) (bool, error) {
	reference := protocol.SetReference{Name: set.Name, UID: set.UID}
	newest := eviction.NewestGeneration(s.state, reference)
	if set.Generation >= newest {
		return false, nil
	}
	live, err := s.liveSet(ctx, reference)
	return err == nil && live != nil && live.Generation < newest, err
}

// notMatched returns the outdated pods of a SidecarSet that are not matched: pods that were never
// injected, that lack a container of the SidecarSet, or whose annotations are damaged.
func (s *evictionScan) notMatched(set *v1alpha1.SidecarSet, namespace string, injected []*corev1.Pod, labels func(string) (map[string]string, error)) ([]*corev1.Pod, error) {
	pods := s.all
	if namespace != "" {
		var err error
		if pods, err = s.Index.In(namespace); err != nil {
			return nil, err
		}
	}
	found, err := rollout.Uninjected(set, pods, s.webhook, labels)
	// A pod that remains in a removed namespace does not stop the evictions of other pods.
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	leftOut, err := rollout.LeftOut(set, version, injected, labels)
	for _, pod := range leftOut {
		found = append(found, pod.Pod)
	}
	return found, err
}

// registered reports whether the webhook is installed and has rules. While the webhook is not registered, for
// example because a user replaces the webhook configuration, no pods are evicted, but the deadline of evictions
// continues (SPEC 13.4.1).
func (s *evictionScan) registered() bool { return s.installed != nil && len(s.installed.Rules) > 0 }

// called reports whether the API server calls the webhook for the replacement of a pod.
func (s *evictionScan) called(pod *corev1.Pod, labels func(string) (map[string]string, error)) (bool, error) {
	if !s.registered() {
		return true, nil // the method waits returns notCalled for each SidecarSet of the pod
	}
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

// add adds a pod. If outdated is set, add also records that the pod is outdated for the SidecarSet set.
func (s *evictionScan) add(pod *corev1.Pod, set string, outdated bool) {
	known := s.pods[pod.UID]
	if known == nil {
		known = &eviction.Pod{Pod: pod, Ready: podstate.Ready(pod)}
		s.pods[pod.UID] = known
	}
	if outdated {
		known.Outdated = append(known.Outdated, set)
	}
}

// waits returns the reason why no pod may be evicted for a SidecarSet now, or an empty string.
func (s *evictionScan) waits(set *v1alpha1.SidecarSet, plan *rollout.Plan) (string, error) {
	if !s.registered() {
		return notCalled, nil
	}
	reason, err := s.notEvictable(set, s.installed, s.policies, s.freezes)
	if err == nil && reason == "" && plan.Phase != protocol.PhaseComplete {
		reason = "the rollout of SidecarSet " + set.Name + " has not ended"
	}
	return reason, err
}

// notEvictable returns the reason why the SidecarSet, its policy, a RolloutFreeze or the fleet prevents evictions
// now, or an empty string.
func (a *Activities) notEvictable(set *v1alpha1.SidecarSet, installed *admissionregistrationv1.MutatingWebhook, policies []outriggerv1.RolloutPolicy, freezes []outriggerv1.RolloutFreeze) (string, error) {
	if reason := rollout.OldWhenRecreated(set, installed); reason != "" {
		return "SidecarSet " + set.Name + ": " + reason, nil
	}
	if reason := staysOutdated(set); reason != "" {
		return reason, nil
	}
	if a.Fleet != nil && !fleet.Permitted(set, nil) {
		return fleet.AwaitingPermit, nil
	}
	// Until all pods are upgraded or recreated, new pods may get the previous content. Later, the run upgrades
	// these new pods in place (SPEC 11.5.5).
	if stage.Former(set) != nil && !stage.Complete(set) {
		if share, err := stage.NewPods(set, policies); err != nil || !share.All() {
			return "new pods of SidecarSet " + set.Name + " do not get its newest content yet", err
		}
	}
	now := a.Clock.Now()
	if freeze := stage.FreezeFor(set, nil, freezes, now); freeze != nil {
		return stage.FreezeMessage(freeze), nil
	}
	resolved, err := stage.Resolve(set, nil, policies)
	if err != nil {
		return "", err
	}
	closed, _, err := stage.Closed(resolved, now)
	return closed, err
}

// staysOutdated returns the reason why the rollout of a SidecarSet does not bring all pods to the
// newest content, or an empty string.
func staysOutdated(set *v1alpha1.SidecarSet) string {
	strategy := &set.Spec.UpdateStrategy
	selects := strategy.Selector != nil && len(strategy.Selector.MatchLabels)+len(strategy.Selector.MatchExpressions) > 0
	switch rolled := set.Status.Rollout; {
	case strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "upgrades of SidecarSet " + set.Name + " are off (updateStrategy.type NotUpdate)"
	case strategy.Paused || rolled != nil && rolled.Pause != nil:
		return "SidecarSet " + set.Name + " is paused"
	case rollout.KeepsPods(strategy) || selects:
		return "updateStrategy.partition or updateStrategy.selector of SidecarSet " + set.Name + " keeps pods at an older version"
	case stage.QuarantineOf(set) != nil:
		return "SidecarSet " + set.Name + " is rolled back"
	case set.Status.ObservedGeneration != set.Generation || rolled == nil || rolled.Generation != set.Generation:
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
