package validation

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Warnings returns warnings about valid settings that prevent rollouts, or the creation of matched pods (SPEC
// 5.28–5.30, 5.32).
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
		warnings = append(warnings, sleepWarning(fmt.Sprintf("containers[%d].lifecycle", i), c.Lifecycle)...)
		if c.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
			warnings = append(warnings, imageWarning(fmt.Sprintf("containers[%d].upgradeStrategy.hotUpgradeEmptyImage", i), c.UpgradeStrategy.HotUpgradeEmptyImage)...)
		}
	}
	for i := range set.Spec.InitContainers {
		warnings = append(warnings, imageWarning(fmt.Sprintf("initContainers[%d].image", i), set.Spec.InitContainers[i].Image)...)
		warnings = append(warnings, sleepWarning(fmt.Sprintf("initContainers[%d].lifecycle", i), set.Spec.InitContainers[i].Lifecycle)...)
	}
	return warnings
}

// sleepWarning warns about hooks that sleep longer than the default grace period of pods.
func sleepWarning(field string, lifecycle *corev1.Lifecycle) []string {
	if lifecycle == nil {
		return nil
	}
	var longest int64
	for _, hook := range []*corev1.LifecycleHandler{lifecycle.PostStart, lifecycle.PreStop} {
		if hook != nil && hook.Sleep != nil {
			longest = max(longest, hook.Sleep.Seconds)
		}
	}
	if longest <= corev1.DefaultTerminationGracePeriodSeconds {
		return nil
	}
	return []string{fmt.Sprintf("spec.%s: a hook sleeps for %d seconds, so the API server rejects matched pods with a shorter terminationGracePeriodSeconds (30 by default)", field, longest)}
}

// imageWarning warns about an image that the API server accepts, but that no node can pull.
func imageWarning(field, image string) []string {
	if !strings.ContainsAny(image, " \t\n") {
		return nil
	}
	return []string{fmt.Sprintf("spec.%s: %q contains a blank, so no node can pull it; remove the blank", field, image)}
}
