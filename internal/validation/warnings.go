package validation

import "github.com/outrigger/outrigger/api/v1alpha1"

// Warnings lists valid settings that stop every injection or rollout (SPEC 5.28, 5.29).
func Warnings(set *v1alpha1.SidecarSet) []string {
	var warnings []string
	if !Overlap(&set.Spec, &set.Spec) {
		warnings = append(warnings, "spec.selector, spec.namespaceSelector: no pod can match, because a selector is empty, or its requirements for one label contradict each other; correct it to select pods")
	}
	strategy := &set.Spec.UpdateStrategy
	if limit := strategy.MaxUnavailable; limit != nil && isZero(limit) && strategy.Type != v1alpha1.NotUpdateSidecarSetStrategyType {
		warnings = append(warnings, "spec.updateStrategy.maxUnavailable: with 0, no ready pod is upgraded; raise it to roll out")
	}
	return warnings
}
