package podstate

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Reasons of the pod condition SidecarSetUpgradable.
const (
	ReasonUpdateImmutableField    = "UpdateImmutableField"
	ReasonAllSidecarsetUpgradable = "AllSidecarsetUpgradable"
)

// UpgradableCondition returns the condition SidecarSetUpgradable for the state of a pod
// towards a SidecarSet (SPEC §7.2), and whether it is a change. A pod that never had the
// condition, and was not upgraded in place, needs none.
func UpgradableCondition(pod *corev1.Pod, set string, state State, now metav1.Time) (condition corev1.PodCondition, changed bool) {
	if falseDue, trueDue := conditionDue(pod, set, state); !falseDue && !trueDue {
		return corev1.PodCondition{}, false
	}
	before := Condition(pod, v1alpha1.UpgradableCondition)
	entries := upgradableEntries(before)
	entries[set] = state.Updated || state.Upgradable
	return conditionOf(before, entries, now), true
}

// ConditionWithoutSet returns the condition SidecarSetUpgradable without the entry of a
// deleted SidecarSet, and whether it is a change. An entry true is not wrong, and stays.
func ConditionWithoutSet(pod *corev1.Pod, set string, now metav1.Time) (condition corev1.PodCondition, changed bool) {
	before := Condition(pod, v1alpha1.UpgradableCondition)
	entries := upgradableEntries(before)
	if can, present := entries[set]; !present || can {
		return corev1.PodCondition{}, false
	}
	delete(entries, set)
	return conditionOf(before, entries, now), true
}

// BlockedSets returns the SidecarSets that cannot upgrade a pod by its condition, in no
// order.
func BlockedSets(pod *corev1.Pod) (sets []string) {
	for set, can := range upgradableEntries(Condition(pod, v1alpha1.UpgradableCondition)) {
		if !can {
			sets = append(sets, set)
		}
	}
	return sets
}

// conditionOf writes the entries. The transition time stays while the status does.
func conditionOf(before *corev1.PodCondition, entries map[string]bool, now metav1.Time) corev1.PodCondition {
	message, _ := json.Marshal(entries) // cannot fail
	condition := corev1.PodCondition{
		Type: v1alpha1.UpgradableCondition, Status: corev1.ConditionTrue, Reason: ReasonAllSidecarsetUpgradable,
		Message: string(message), LastTransitionTime: now,
	}
	for _, can := range entries {
		if !can {
			condition.Status, condition.Reason = corev1.ConditionFalse, ReasonUpdateImmutableField
		}
	}
	if before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return condition
}

// upgradableEntries reads SidecarSet name → upgradable. A message that cannot be read is
// replaced.
func upgradableEntries(condition *corev1.PodCondition) map[string]bool {
	entries := map[string]bool{}
	if condition == nil || json.Unmarshal([]byte(condition.Message), &entries) != nil || entries == nil {
		return map[string]bool{}
	}
	return entries
}

// conditionDue reports which entry the condition of the pod lacks: false if the SidecarSet
// cannot upgrade the pod; true if it can although the condition says false, or if it has
// upgraded the pod in place.
func conditionDue(pod *corev1.Pod, set string, state State) (falseDue, trueDue bool) {
	entry, present := upgradableEntries(Condition(pod, v1alpha1.UpgradableCondition))[set]
	if !state.Updated && !state.Upgradable {
		return entry || !present, false
	}
	return false, !entry && (present || state.Updated && state.UpgradedToVersion)
}
