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

// UpgradableCondition returns the condition SidecarSetUpgradable for the state of a pod relative to a SidecarSet
// (SPEC §7.2). changed is true if the condition must be written to the pod. For a pod that is updated or
// upgradable, a missing entry counts as true, and is added only after an in-place upgrade to the version.
func UpgradableCondition(pod *corev1.Pod, set string, state State, now metav1.Time) (condition corev1.PodCondition, changed bool) {
	if falseDue, trueDue := conditionDue(pod, set, state); !falseDue && !trueDue {
		return corev1.PodCondition{}, false
	}
	before := Condition(pod, v1alpha1.UpgradableCondition)
	entries := upgradableEntries(before)
	entries[set] = state.Updated || state.Upgradable
	return conditionOf(before, entries, now), true
}

// ConditionWithoutSet returns the condition SidecarSetUpgradable without the false entry of a deleted SidecarSet.
// changed is true if the condition has this entry. A true entry remains, because a true entry does not make the
// condition False.
func ConditionWithoutSet(pod *corev1.Pod, set string, now metav1.Time) (condition corev1.PodCondition, changed bool) {
	before := Condition(pod, v1alpha1.UpgradableCondition)
	entries := upgradableEntries(before)
	if can, present := entries[set]; !present || can {
		return corev1.PodCondition{}, false
	}
	delete(entries, set)
	return conditionOf(before, entries, now), true
}

// BlockedSets returns the names of the SidecarSets with a false entry in the condition SidecarSetUpgradable of a
// pod. The names are not sorted.
func BlockedSets(pod *corev1.Pod) (sets []string) {
	for set, can := range upgradableEntries(Condition(pod, v1alpha1.UpgradableCondition)) {
		if !can {
			sets = append(sets, set)
		}
	}
	return sets
}

// conditionOf returns the condition with the entries. The transition time changes only if the status changes.
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

// upgradableEntries parses the message of the condition. The message maps the name of each SidecarSet to true if
// the SidecarSet can upgrade the pod in place, and otherwise to false. If the message cannot be parsed, the
// result is empty.
func upgradableEntries(condition *corev1.PodCondition) map[string]bool {
	entries := map[string]bool{}
	if condition == nil || json.Unmarshal([]byte(condition.Message), &entries) != nil || entries == nil {
		return map[string]bool{}
	}
	return entries
}

// conditionDue reports whether the entry of the SidecarSet in the condition must change. falseDue is true if the
// pod is neither updated nor upgradable, and the entry is missing or true. For all other pods, trueDue is true if
// the entry is false, or if the entry is missing and the pod is updated by an in-place upgrade.
func conditionDue(pod *corev1.Pod, set string, state State) (falseDue, trueDue bool) {
	entry, present := upgradableEntries(Condition(pod, v1alpha1.UpgradableCondition))[set]
	if !state.Updated && !state.Upgradable {
		return entry || !present, false
	}
	return false, !entry && (present || state.Updated && state.UpgradedToVersion)
}
