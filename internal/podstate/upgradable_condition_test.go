package podstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// A deleted SidecarSet has no run that could update the condition.
func TestSpec7_2_TheEntryOfADeletedSetIsRemoved(t *testing.T) {
	now := metav1.NewTime(patched)
	for message, want := range map[string]struct {
		status  corev1.ConditionStatus
		message string
	}{
		`{"gone":false}`:           {"True", `{}`},
		`{"gone":false,"o":true}`:  {"True", `{"o":true}`},
		`{"gone":false,"o":false}`: {"False", `{"o":false}`},
		`{"gone":true,"o":false}`:  {},
		`{"o":false}`:              {},
		`damaged`:                  {},
	} {
		pod := &corev1.Pod{}
		pod.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.UpgradableCondition, Status: corev1.ConditionFalse, Message: message}}
		condition, changed := ConditionWithoutSet(pod, "gone", now)
		assert.Equal(t, want.message != "", changed, message)
		assert.Equal(t, want.status, condition.Status, message)
		assert.Equal(t, want.message, condition.Message, message)
	}
}

func TestSpec7_2_UpgradableCondition(t *testing.T) {
	earlier, now := metav1.NewTime(patched.Add(-1)), metav1.NewTime(patched)
	having := func(status corev1.ConditionStatus, message string) *corev1.PodCondition {
		return &corev1.PodCondition{Type: v1alpha1.UpgradableCondition, Status: status, Message: message, LastTransitionTime: earlier}
	}
	condition := func(status corev1.ConditionStatus, reason, message string, at metav1.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: v1alpha1.UpgradableCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: at}
	}
	done := State{Updated: true, Upgradable: true, UpgradedToVersion: true, Consistent: true, Ready: true}
	can, cannot := State{Upgradable: true}, State{}
	for name, c := range map[string]struct {
		before            *corev1.PodCondition
		state             State
		want              corev1.PodCondition
		falseDue, trueDue bool
	}{
		"first entry that is false":                    {nil, cannot, condition("False", ReasonUpdateImmutableField, `{"s":false}`, now), true, false},
		"no condition, upgradable":                     {nil, can, corev1.PodCondition{}, false, false},
		"upgraded for the first time":                  {nil, done, condition("True", ReasonAllSidecarsetUpgradable, `{"s":true}`, now), false, true},
		"being upgraded":                               {nil, State{Updated: true, UpgradedToVersion: true}, condition("True", ReasonAllSidecarsetUpgradable, `{"s":true}`, now), false, true},
		"created with the version":                     {nil, State{Updated: true, Consistent: true, Ready: true}, corev1.PodCondition{}, false, false},
		"upgraded once more":                           {having("True", `{"s":true}`), done, corev1.PodCondition{}, false, false},
		"upgraded, another set was first":              {having("True", `{"o":true}`), done, condition("True", ReasonAllSidecarsetUpgradable, `{"o":true,"s":true}`, earlier), false, true},
		"said already":                                 {having("False", `{"s":false}`), cannot, corev1.PodCondition{}, false, false},
		"turns":                                        {having("False", `{"s":false}`), can, condition("True", ReasonAllSidecarsetUpgradable, `{"s":true}`, now), false, true},
		"becomes true, another SidecarSet stays false": {having("False", `{"o":false,"s":false}`), can, condition("False", ReasonUpdateImmutableField, `{"o":false,"s":true}`, earlier), false, true},
		"turns back":                                   {having("True", `{"s":true}`), cannot, condition("False", ReasonUpdateImmutableField, `{"s":false}`, now), true, false},
		"an unreadable message is replaced":            {having("True", `not JSON`), cannot, condition("False", ReasonUpdateImmutableField, `{"s":false}`, now), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if c.before != nil {
				pod.Status.Conditions = []corev1.PodCondition{*c.before}
			}
			got, changed := UpgradableCondition(pod, "s", c.state, now)
			assert.Equal(t, c.falseDue || c.trueDue, changed)
			assert.Equal(t, c.want, got)
			falseDue, trueDue := conditionDue(pod, "s", c.state)
			assert.Equal(t, []bool{c.falseDue, c.trueDue}, []bool{falseDue, trueDue})
		})
	}
}
