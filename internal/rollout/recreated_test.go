package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

func TestSpec13_RecreatedPodsGetTheNewestContent(t *testing.T) {
	set := &v1alpha1.SidecarSet{Spec: v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	scope, _ := match.NewScope(&set.Spec)
	other, _ := match.NewScope(&v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}})
	webhook := func(names ...admissionregistrationv1.MatchCondition) *admissionregistrationv1.MutatingWebhook {
		return &admissionregistrationv1.MutatingWebhook{MatchConditions: names}
	}
	following := func(scope match.Scope) admissionregistrationv1.MatchCondition {
		return admissionregistrationv1.MatchCondition{Name: match.ConditionName, Expression: match.NewCondition(scope).Expression()}
	}
	assert.Empty(t, OldWhenRecreated(set, nil))
	assert.Empty(t, OldWhenRecreated(set, webhook(following(scope), match.CriticalCondition())))
	assert.Contains(t, OldWhenRecreated(set, webhook(following(other))), match.ConditionName+") may leave out")
	assert.Contains(t, OldWhenRecreated(set, webhook(admissionregistrationv1.MatchCondition{Name: "ours"})), "(ours) may leave out")
	for want, change := range map[string]func(*v1alpha1.SidecarSet){
		"it is being deleted":                   func(s *v1alpha1.SidecarSet) { s.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) },
		"spec.injectionStrategy.paused is true": func(s *v1alpha1.SidecarSet) { s.Spec.InjectionStrategy.Paused = true },
		"spec.injectionStrategy.revision is set": func(s *v1alpha1.SidecarSet) {
			s.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{}
		},
	} {
		changed := set.DeepCopy()
		change(changed)
		assert.Contains(t, OldWhenRecreated(changed, nil), want)
	}
}
