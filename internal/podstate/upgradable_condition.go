package podstate

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Reasons of the pod condition SidecarSetUpgradable.
const (
	ReasonUpdateImmutableField    = "UpdateImmutableField"
	ReasonAllSidecarsetUpgradable = "AllSidecarsetUpgradable"
)

// UpgradableCondition returns the condition SidecarSetUpgradable as it must be in
// a state of the pod towards a set (SPEC §7.2), and whether that is a change. A
// pod that never had the condition, and was not upgraded in place, needs none.
func UpgradableCondition(pod *corev1.Pod, set string, state State, now metav1.Time) (condition corev1.PodCondition, changed bool, err error) {
	if falseDue, trueDue := conditionDue(pod, set, state); !falseDue && !trueDue {
		return corev1.PodCondition{}, false, nil
	}
	before := findCondition(pod, v1alpha1.UpgradableCondition)
	entries := upgradableEntries(before)
	entries[set] = state.Updated || state.Upgradable
	message, err := json.Marshal(entries)
	if err != nil {
		return corev1.PodCondition{}, false, fmt.Errorf("encode condition %s: %w", v1alpha1.UpgradableCondition, err)
	}
	condition = corev1.PodCondition{
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
	return condition, true, nil
}

// upgradableEntries reads set name → upgradable. What cannot be read is written anew.
func upgradableEntries(condition *corev1.PodCondition) map[string]bool {
	entries := map[string]bool{}
	if condition == nil || json.Unmarshal([]byte(condition.Message), &entries) != nil || entries == nil {
		return map[string]bool{}
	}
	return entries
}

// conditionDue reports which entry of the set the pod's condition lacks: false,
// when the set cannot upgrade the pod; true, when it can although the condition
// says otherwise, or when it did and the upgrade is over.
func conditionDue(pod *corev1.Pod, set string, state State) (falseDue, trueDue bool) {
	entry, present := upgradableEntries(findCondition(pod, v1alpha1.UpgradableCondition))[set]
	if !state.Updated && !state.Upgradable {
		return entry || !present, false
	}
	return false, !entry && (present || state.upgraded())
}

// upgraded pods hold the version because they were upgraded to it in place.
func (s State) upgraded() bool { return s.Updated && s.Moved && s.Settled() }
