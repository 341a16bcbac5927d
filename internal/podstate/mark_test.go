package podstate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec7_2_Mark(t *testing.T) {
	earlier, now := metav1.NewTime(patched.Add(-1)), metav1.NewTime(patched)
	marked := func(status corev1.ConditionStatus, message string) *corev1.PodCondition {
		return &corev1.PodCondition{Type: v1alpha1.UpgradableCondition, Status: status, Message: message, LastTransitionTime: earlier}
	}
	condition := func(status corev1.ConditionStatus, reason, message string, at metav1.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: v1alpha1.UpgradableCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: at}
	}
	for name, c := range map[string]struct {
		before     *corev1.PodCondition
		upgradable bool
		want       corev1.PodCondition
		changed    bool
	}{
		"first refusal":                  {nil, false, condition("False", ReasonUpdateImmutableField, `{"s":false}`, now), true},
		"never marked, all well":         {nil, true, corev1.PodCondition{}, false},
		"said already":                   {marked("False", `{"s":false}`), false, corev1.PodCondition{}, false},
		"turns":                          {marked("False", `{"s":false}`), true, condition("True", ReasonAllSidecarsetUpgradable, `{"s":true}`, now), true},
		"turns, another set still holds": {marked("False", `{"o":false,"s":false}`), true, condition("False", ReasonUpdateImmutableField, `{"o":false,"s":true}`, earlier), true},
		"turns back":                     {marked("True", `{"s":true}`), false, condition("False", ReasonUpdateImmutableField, `{"s":false}`, now), true},
		"what cannot be read is mended":  {marked("True", `not JSON`), false, condition("False", ReasonUpdateImmutableField, `{"s":false}`, now), true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if c.before != nil {
				pod.Status.Conditions = []corev1.PodCondition{*c.before}
			}
			got, changed, err := Mark(pod, "s", c.upgradable, now)
			require.NoError(t, err)
			assert.Equal(t, c.changed, changed)
			assert.Equal(t, c.want, got)
			assert.Equal(t, changed, markStale(pod, "s", c.upgradable))
		})
	}
}
