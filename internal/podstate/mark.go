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

// Mark returns the condition SidecarSetUpgradable as it must be in a state of
// the pod towards a set (SPEC §7.2), and whether that is a change. A pod that
// was never marked, nor upgraded in place, needs no mark to say that all is well.
func Mark(pod *corev1.Pod, set string, state State, now metav1.Time) (condition corev1.PodCondition, changed bool, err error) {
	if stale, late := marksDue(pod, set, state); !stale && !late {
		return corev1.PodCondition{}, false, nil
	}
	before := findCondition(pod, v1alpha1.UpgradableCondition)
	marks := marksOf(before)
	marks[set] = state.Updated || state.Upgradable
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

// marksDue tells what the pod's condition does not say yet: that the set cannot
// upgrade it (stale), or that it can although the condition denies it, or that
// it did, once the upgrade is over (late).
func marksDue(pod *corev1.Pod, set string, state State) (stale, late bool) {
	have, marked := marksOf(findCondition(pod, v1alpha1.UpgradableCondition))[set]
	if !state.Updated && !state.Upgradable {
		return have || !marked, false
	}
	return false, !have && (marked || state.upgraded())
}

// upgraded pods hold the version because they were upgraded to it in place.
func (s State) upgraded() bool { return s.Updated && s.Moved && s.Settled() }
