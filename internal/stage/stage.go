// Package stage applies RolloutPolicies and RolloutFreezes to a rollout (SPEC §11).
package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// PolicyOf returns the policy that applies to a SidecarSet, or nil (SPEC 11.1.2). A policy whose selector is
// invalid is an error for every SidecarSet, because the policy may be meant for any SidecarSet.
func PolicyOf(set *v1alpha1.SidecarSet, policies []outriggerv1.RolloutPolicy) (*outriggerv1.RolloutPolicy, error) {
	var found *outriggerv1.RolloutPolicy
	for i := range policies {
		policy := &policies[i]
		if policy.DeletionTimestamp != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("RolloutPolicy %s: spec.selector: %w", policy.Name, err)
		}
		if selector.Matches(labels.Set(set.Labels)) && (found == nil || compare(policy, found) < 0) {
			found = policy
		}
	}
	return found, nil
}

func compare(a, b *outriggerv1.RolloutPolicy) int {
	return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
}

// Resolve returns the stage of the next plan of a SidecarSet. Resolve keeps a step that has begun, and
// otherwise reads the next step from the policy that applies (SPEC 11.2.6). From the stage of an earlier
// generation, Resolve keeps only the quarantine, the abort or the retry of the same content. If no policy
// applies, the result is a stage without a limit, or nil if current is nil. If a policy has an invalid
// selector, Resolve returns an error, except for an aborted rollout.
func Resolve(set *v1alpha1.SidecarSet, current *protocol.Stage, policies []outriggerv1.RolloutPolicy) (*protocol.Stage, error) {
	if Decided(set, current) {
		return current, nil
	}
	if current != nil && !describes(set, current) {
		if current = carried(set, current); Decided(set, current) {
			return current, nil
		}
	}
	policy, err := PolicyOf(set, policies)
	switch {
	case err != nil && current != nil && current.Aborted != nil:
		return current, nil // an invalid policy does not stop a rollback
	case err != nil || policy == nil && current == nil:
		return nil, err
	}
	next := protocol.Stage{Generation: set.Generation}
	if current != nil {
		next = *current
	}
	next.Hash = set.Annotations[v1alpha1.HashAnnotation]
	if policy == nil {
		next.Done = true
		return &next, nil
	}
	begin(&next, policy)
	return &next, nil
}

// begin sets the current step of a stage from the policy.
func begin(next *protocol.Stage, policy *outriggerv1.RolloutPolicy) {
	steps := Steps(policy)
	next.Policy, next.Steps = policy.Name, len(steps)
	switch {
	case next.Index < next.Steps:
		next.Step = stepOf(&steps[next.Index], &policy.Spec)
	case limits(&policy.Spec):
		// The last step was promoted, or the policy has fewer steps than before. The stage keeps its index,
		// so that a request for an earlier step stays invalid.
		next.Steps, next.Step = next.Index+1, stepOf(&outriggerv1.RolloutStep{UpTo: allPods()}, &policy.Spec)
	default:
		next.Done = true
	}
}

func allPods() intstr.IntOrString { return intstr.FromString("100%") }

// Decided reports whether Resolve needs no policies, because Resolve keeps the stage.
func Decided(set *v1alpha1.SidecarSet, current *protocol.Stage) bool {
	return describes(set, current) && (current.Done || current.Step != nil || current.Quarantine != nil)
}

// describes reports whether a stage belongs to the current generation of a completed SidecarSet. The hashes
// are compared, because after a restore of etcd, a generation with other content may have the same number.
// During a rollback, the SidecarSet may be the result of Target, which has the content of the former revision.
func describes(set *v1alpha1.SidecarSet, s *protocol.Stage) bool {
	if s == nil || s.Generation != set.Generation {
		return false
	}
	hash := set.Annotations[v1alpha1.HashAnnotation]
	if q := s.Quarantine; q != nil {
		return q.Hash == hash || isTarget(set, q)
	}
	return s.Hash == "" || s.Hash == hash
}

// Steps returns the steps of a policy. The windows and the other limits also apply after the last step, so a
// policy with windows or other limits has a further step up to all pods.
func Steps(policy *outriggerv1.RolloutPolicy) []outriggerv1.RolloutStep {
	steps, all := policy.Spec.Steps, allPods()
	if !limits(&policy.Spec) || len(steps) > 0 && steps[len(steps)-1].UpTo == all {
		return steps
	}
	return append(slices.Clone(steps), outriggerv1.RolloutStep{UpTo: all})
}

// limits reports whether a policy has limits that also apply after the last step.
func limits(policy *outriggerv1.RolloutPolicySpec) bool {
	return policy.Failure != nil || len(policy.Windows) > 0 || policy.MaxUnavailablePerOwner > 0 || policy.Domains != nil || policy.RespectPodDisruptionBudgets
}

func stepOf(step *outriggerv1.RolloutStep, policy *outriggerv1.RolloutPolicySpec) *protocol.Step {
	copied := &protocol.Step{Name: step.Name, UpTo: step.UpTo, Approval: step.Approval != nil, MaxPerOwner: int(policy.MaxUnavailablePerOwner), RespectBudgets: policy.RespectPodDisruptionBudgets}
	if policy.Failure != nil {
		copied.MaxFailed = &policy.Failure.MaxFailedPods
		copied.Rollback = policy.Failure.Action == outriggerv1.RollbackOnFailure
		copied.UnreadyFor, copied.AppRestarts = durationOf(policy.Failure.UnreadyFor), policy.Failure.AppRestarts
		copied.ProgressDeadline = durationOf(policy.Failure.ProgressDeadline)
	}
	if domains := policy.Domains; domains != nil {
		copied.Domains = &protocol.Domains{TopologyKey: domains.TopologyKey, MaxUnavailable: int(domains.MaxUnavailableDomains)}
	}
	for _, window := range policy.Windows {
		copied.Windows = append(copied.Windows, protocol.Window{Schedule: window.Schedule, Duration: window.Duration.Duration, TimeZone: window.TimeZone})
	}
	copied.Bake = durationOf(step.Bake)
	copied.Gates = gatesOf(step, policy)
	return copied
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// Allowed returns the number of the remaining pods that the rollout may upgrade in the current step (SPEC
// §11.2.1). updated is the number of pods that are updated already. Without a step, all remaining pods are
// allowed. In a reached step, no pods are allowed. Allowed returns an error if upTo of the step is invalid.
func Allowed(s *protocol.Stage, updated, remaining int) (int, error) {
	switch {
	case !s.Limits():
		return remaining, nil
	case s.Reached != nil:
		return 0, nil
	}
	upTo, err := intstr.GetScaledValueFromIntOrPercent(&s.Step.UpTo, updated+remaining, true)
	if err != nil {
		return 0, fmt.Errorf("RolloutPolicy %s: upTo of %s: %w", s.Policy, s.Title(), err)
	}
	return min(max(upTo-updated, 0), remaining), nil
}

// MaxFailed returns the number of failed pods above which a rollout has failed (SPEC §11.6). pods is the number
// of pods of the rollout. limited is false if the stage has no limit. MaxFailed returns an error if the limit
// is invalid.
func MaxFailed(s *protocol.Stage, pods int) (limit int, limited bool, err error) {
	if !s.Limits() || s.Step.MaxFailed == nil {
		return 0, false, nil
	}
	limit, err = intstr.GetScaledValueFromIntOrPercent(s.Step.MaxFailed, pods, false)
	if err != nil {
		return 0, false, fmt.Errorf("RolloutPolicy %s: failure.maxFailedPods: %w", s.Policy, err)
	}
	return limit + s.Tolerated, true, nil
}

// ObservesHealth reports whether a stage counts pods that are not ready, or whose app restarted.
func ObservesHealth(s *protocol.Stage) bool {
	return s.Limits() && s.Step.MaxFailed != nil && (s.Step.UnreadyFor > 0 || s.Step.AppRestarts > 0)
}

// LimitsUnavailable reports whether a stage limits the pods that upgrades make unavailable at once,
// in addition to maxUnavailable (SPEC §11.9, §11.10, §11.11).
func LimitsUnavailable(s *protocol.Stage) bool {
	return s.HasStep() && (s.Step.MaxPerOwner > 0 || s.Step.Domains != nil || s.Step.RespectBudgets)
}
