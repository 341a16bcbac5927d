package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestOnlyPodChangesThatStatusShowsAreFollowed(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*corev1.Pod)
		matters bool
	}{
		{"nothing", func(*corev1.Pod) {}, false},
		{"foreign annotation", func(p *corev1.Pod) { p.Annotations["other"] = "x" }, false},
		{"foreign condition", func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionTrue }, false},
		{"resource version", func(p *corev1.Pod) { p.ResourceVersion = "2" }, false},
		{"another incarnation", func(p *corev1.Pod) { p.UID = "2" }, true},
		{"deletion", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true},
		{"label", func(p *corev1.Pod) { p.Labels["app"] = "x" }, true},
		{"hash", func(p *corev1.Pod) { p.Annotations[v1alpha1.HashAnnotation] = "{}" }, true},
		{"injected list", func(p *corev1.Pod) { p.Annotations[v1alpha1.InjectedListAnnotation] = "b" }, true},
		{"phase", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		{"readiness", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		{"container", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ImageID = "x" }, true},
		{"native sidecar", func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].RestartCount = 1 }, true},
	} {
		before := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1", Labels: map[string]string{"app": "web"},
				Annotations: map[string]string{v1alpha1.InjectedListAnnotation: "a"}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: "Other", Status: corev1.ConditionFalse},
				},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "c"}},
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "i"}},
			},
		}
		after := before.DeepCopy()
		c.change(after)
		assert.Equal(t, c.matters, affectsStatus(before, after), c.name)
	}
}

func TestOwnStatusWritesAreNotUrgent(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.SidecarSet)
		alone  bool
	}{
		{"status", func(s *v1alpha1.SidecarSet) { s.Status.MatchedPods = 1; s.ResourceVersion = "2" }, true},
		{"spec", func(s *v1alpha1.SidecarSet) { s.Generation++ }, false},
		{"label", func(s *v1alpha1.SidecarSet) { s.Labels = map[string]string{"a": "b"} }, false},
		{"annotation", func(s *v1alpha1.SidecarSet) { s.Annotations = map[string]string{"a": "b"} }, false},
		{"another incarnation", func(s *v1alpha1.SidecarSet) { s.UID = "2" }, false},
	} {
		before := setAt(0)
		after := before.DeepCopy()
		c.change(after)
		assert.Equal(t, c.alone, statusAlone(before, after), c.name)
	}
}
