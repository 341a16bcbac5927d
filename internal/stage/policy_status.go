package stage

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// maxNames limits the names in the status of a RolloutPolicy.
const maxNames = 100

// Statuses returns the status of each policy, in the order of the policies. Statuses returns an error if a
// policy has an invalid selector.
func Statuses(sets []v1alpha1.SidecarSet, policies []outriggerv1.RolloutPolicy) ([]outriggerv1.RolloutPolicyStatus, error) {
	names := map[string][]string{}
	for i := range sets {
		policy, err := PolicyOf(&sets[i], policies)
		if err != nil {
			return nil, err
		}
		if policy != nil {
			names[policy.Name] = append(names[policy.Name], sets[i].Name)
		}
	}
	statuses := make([]outriggerv1.RolloutPolicyStatus, len(policies))
	for i := range policies {
		applied := names[policies[i].Name]
		slices.Sort(applied)
		statuses[i] = outriggerv1.RolloutPolicyStatus{
			ObservedGeneration: policies[i].Generation, SidecarSets: int32(len(applied)), Names: applied[:min(len(applied), maxNames)],
		}
	}
	return statuses, nil
}

// SameStatus reports whether two statuses are equal. A missing list of names is equal to an empty list.
func SameStatus(a, b *outriggerv1.RolloutPolicyStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.SidecarSets == b.SidecarSets && slices.Equal(a.Names, b.Names) &&
		equality.Semantic.DeepEqual(a.Evictions, b.Evictions)
}
