package validation

import "github.com/outrigger/outrigger/api/v1alpha1"

// Warnings lists valid settings that stop every rollout (SPEC 5.28).
func Warnings(set *v1alpha1.SidecarSet) []string {
	strategy := &set.Spec.UpdateStrategy
	if limit := strategy.MaxUnavailable; limit == nil || !isZero(limit) || strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType {
		return nil
	}
	return []string{"spec.updateStrategy.maxUnavailable: with 0, no ready pod is upgraded; raise it to roll out"}
}
