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

// Mark returns the condition SidecarSetUpgradable as it must be once a set can,
// or cannot, upgrade the pod in place (SPEC §7.2). It tells whether that is a
// change; a pod that was never marked needs no mark to say that all is well.
func Mark(pod *corev1.Pod, set string, upgradable bool, now metav1.Time) (condition corev1.PodCondition, changed bool, err error) {
	before := findCondition(pod, v1alpha1.UpgradableCondition)
	marks := marksOf(before)
	if have, marked := marks[set]; marked && have == upgradable || !marked && upgradable {
		return corev1.PodCondition{}, false, nil
	}
	marks[set] = upgradable
	message, err := json.Marshal(marks)
	if err != nil {
		return corev1.PodCondition{}, false, fmt.Errorf("encode condition %s: %w", v1alpha1.UpgradableCondition, err)
	}
	condition = corev1.PodCondition{
		Type: v1alpha1.UpgradableCondition, Status: corev1.ConditionTrue, Reason: ReasonAllSidecarsetUpgradable,
		Message: string(message), LastTransitionTime: now,
	}
	for _, can := range marks {
		if !can {
			condition.Status, condition.Reason = corev1.ConditionFalse, ReasonUpdateImmutableField
		}
	}
	if before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return condition, true, nil
}

// marksOf reads set name → upgradable. What cannot be read is written anew.
func marksOf(condition *corev1.PodCondition) map[string]bool {
	marks := map[string]bool{}
	if condition == nil || json.Unmarshal([]byte(condition.Message), &marks) != nil || marks == nil {
		return map[string]bool{}
	}
	return marks
}

// markStale tells whether the pod's mark says otherwise than the state.
func markStale(pod *corev1.Pod, set string, upgradable bool) bool {
	have, marked := marksOf(findCondition(pod, v1alpha1.UpgradableCondition))[set]
	return marked && have != upgradable || !marked && !upgradable
}
