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

// UpgradableCondition returns the condition SidecarSetUpgradable for the state of a pod relative to a
// SidecarSet (SPEC §7.2). changed is true if the condition must be written to the pod. An updated or
// upgradable pod needs no condition if the condition has no entry for the SidecarSet, unless the pod was
// upgraded in place to the version.
func UpgradableCondition(pod *corev1.Pod, set string, state State, now metav1.Time) (condition corev1.PodCondition, changed bool) {
	if falseDue, trueDue := conditionDue(pod, set, state); !falseDue && !trueDue {
		return corev1.PodCondition{}, false
	}
	before := Condition(pod, v1alpha1.UpgradableCondition)
	entries := upgradableEntries(before)
	entries[set] = state.Updated || state.Upgradable
	return conditionOf(before, entries, now), true
}

// ConditionWithoutSet returns the condition SidecarSetUpgradable without the entry false of a deleted
// SidecarSet. changed is true if the pod has such an entry. An entry true is not removed, because an entry
// true does not make the condition False.
func ConditionWithoutSet(pod *corev1.Pod, set string, now metav1.Time) (condition corev1.PodCondition, changed bool) {
	before := Condition(pod, v1alpha1.UpgradableCondition)
	entries := upgradableEntries(before)
	if can, present := entries[set]; !present || can {
		return corev1.PodCondition{}, false
	}
	delete(entries, set)
	return conditionOf(before, entries, now), true
}

// BlockedSets returns the SidecarSets that cannot upgrade a pod according to the condition of the pod. The
// result is not sorted.
func BlockedSets(pod *corev1.Pod) (sets []string) {
	for set, can := range upgradableEntries(Condition(pod, v1alpha1.UpgradableCondition)) {
		if !can {
			sets = append(sets, set)
		}
	}
	return sets
}

// conditionOf returns the condition with the entries. The transition time changes only with the
// status.
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

// upgradableEntries parses the message of the condition. The message maps the name of a
// SidecarSet to whether the SidecarSet can upgrade the pod. If the message cannot be parsed, the
// result is empty.
func upgradableEntries(condition *corev1.PodCondition) map[string]bool {
	entries := map[string]bool{}
	if condition == nil || json.Unmarshal([]byte(condition.Message), &entries) != nil || entries == nil {
		return map[string]bool{}
	}
	return entries
}

// conditionDue reports which entry the condition of the pod lacks. falseDue is true if the
// SidecarSet cannot upgrade the pod and the entry is not false. trueDue is true if the SidecarSet
// can upgrade the pod and the entry is false. trueDue is also true if the SidecarSet has upgraded
// the pod in place to its version and the entry is missing.
func conditionDue(pod *corev1.Pod, set string, state State) (falseDue, trueDue bool) {
	entry, present := upgradableEntries(Condition(pod, v1alpha1.UpgradableCondition))[set]
	if !state.Updated && !state.Upgradable {
		return entry || !present, false
	}
	return false, !entry && (present || state.Updated && state.UpgradedToVersion)
}
