package validation

import (
	"fmt"
	"strings"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Warnings returns warnings about valid settings that prevent every injection or rollout (SPEC 5.28–5.30).
func Warnings(set *v1alpha1.SidecarSet) []string {
	var warnings []string
	if !Overlap(&set.Spec, &set.Spec) {
		warnings = append(warnings, "spec.selector, spec.namespaceSelector: no pod can match, because a selector is empty, or its requirements for one label contradict each other; correct it to select pods")
	}
	strategy := &set.Spec.UpdateStrategy
	if limit := strategy.MaxUnavailable; limit != nil && isZero(limit) && strategy.Type != v1alpha1.NotUpdateSidecarSetStrategyType {
		warnings = append(warnings, "spec.updateStrategy.maxUnavailable: with 0, no ready pod is upgraded; raise it to roll out")
	}
	for i := range set.Spec.Containers {
		c := &set.Spec.Containers[i]
		warnings = append(warnings, imageWarning(fmt.Sprintf("containers[%d].image", i), c.Image)...)
		if c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
			warnings = append(warnings, imageWarning(fmt.Sprintf("containers[%d].upgradeStrategy.hotUpgradeEmptyImage", i), c.UpgradeStrategy.HotUpgradeEmptyImage)...)
		}
	}
	for i := range set.Spec.InitContainers {
		warnings = append(warnings, imageWarning(fmt.Sprintf("initContainers[%d].image", i), set.Spec.InitContainers[i].Image)...)
	}
	return warnings
}

// imageWarning warns of an image that the API server accepts, and that no node can pull.
func imageWarning(field, image string) []string {
	if !strings.ContainsAny(image, " \t\n") {
		return nil
	}
	return []string{fmt.Sprintf("spec.%s: %q contains a blank, so no node can pull it; remove the blank", field, image)}
}
