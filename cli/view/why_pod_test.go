package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/match"
)

func TestTheRuleOfAnInjectionIsNamed(t *testing.T) {
	set, _ := logs(t)
	why := func(change func(*PodWhyInput)) string {
		in := PodWhyInput{Pod: pod(t, "p", "agent:v1"), Sets: []v1alpha1.SidecarSet{*set.DeepCopy()}, SystemNamespace: "kruise-system"}
		in.Pod.Annotations = nil
		change(&in)
		return NewPodWhy(in).Sets[0].Reason
	}
	for want, change := range map[string]func(*PodWhyInput){
		"mirrors a static pod":                 func(in *PodWhyInput) { in.Pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
		"it requires app=web":                  func(in *PodWhyInput) { in.Pod.Labels = nil },
		"spec.selector is empty":               func(in *PodWhyInput) { in.Sets[0].Spec.Selector = nil },
		"the SidecarSet is for namespace shop": func(in *PodWhyInput) { in.Sets[0].Spec.Namespace = "shop" },
		"it requires team=a": func(in *PodWhyInput) {
			in.Sets[0].Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		},
		"system-node-critical": func(in *PodWhyInput) {
			in.Pod.Namespace, in.Pod.Spec.PriorityClassName = "kube-system", "system-node-critical"
		},
		"Outrigger's own namespace":       func(in *PodWhyInput) { in.Pod.Namespace = "kruise-system" },
		"outrigger.io/injection=disabled": func(in *PodWhyInput) { in.NamespaceLabels = map[string]string{"outrigger.io/injection": "disabled"} },
		"older than the SidecarSet":       func(in *PodWhyInput) { in.Pod.CreationTimestamp = ago(2 * time.Hour) },
		"injectionStrategy.paused":        func(in *PodWhyInput) { in.Sets[0].Spec.InjectionStrategy.Paused = true },
		"is not installed":                func(in *PodWhyInput) { in.Webhook.Absent = true },
		"is not activated":                func(in *PodWhyInput) { in.Webhook.Installed = &admissionv1.MutatingWebhook{} },
		"failurePolicy is Ignore": func(in *PodWhyInput) {
			in.Webhook.Installed = &admissionv1.MutatingWebhook{Rules: make([]admissionv1.RuleWithOperations, 1), FailurePolicy: new(admissionv1.Ignore)}
		},
		"its objectSelector requires sidecars=yes": func(in *PodWhyInput) {
			in.Webhook.Installed = &admissionv1.MutatingWebhook{Rules: make([]admissionv1.RuleWithOperations, 1), ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"sidecars": "yes"}}}
		},
		"its namespaceSelector requires team=b": func(in *PodWhyInput) {
			in.Webhook.Installed = &admissionv1.MutatingWebhook{Rules: make([]admissionv1.RuleWithOperations, 1), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}}
		},
		"leaves it out (ours)": func(in *PodWhyInput) {
			in.Webhook.Installed = &admissionv1.MutatingWebhook{Rules: make([]admissionv1.RuleWithOperations, 1), MatchConditions: []admissionv1.MatchCondition{match.CriticalCondition(), {Name: "ours"}}}
		},
		"leaves it out (selected-by-a-sidecarset)": func(in *PodWhyInput) {
			in.Webhook.Installed = &admissionv1.MutatingWebhook{Rules: make([]admissionv1.RuleWithOperations, 1), MatchConditions: []admissionv1.MatchCondition{{Name: match.ConditionName, Expression: "false"}}}
		},
		"injection was resumed": func(*PodWhyInput) {},
		"relabelled after its creation (by kubectl-label at 2026-": func(in *PodWhyInput) {
			in.Pod.ManagedFields = []metav1.ManagedFieldsEntry{
				{Manager: "created", Time: &in.Pod.CreationTimestamp, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)},
				{Manager: "kubelet", Subresource: "status", Time: new(metav1.NewTime(noon)), FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
				{Manager: "kubectl-label", Time: new(metav1.NewTime(noon)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:app":{}}}}`)},
			}
		},
		"annotation kruise.io/sidecarset-i": func(in *PodWhyInput) { in.Pod = pod(t, "p", "agent:v1") },
	} {
		assert.Contains(t, why(change), want)
	}
}

func TestTheReasonOfAMissingUpgradeIsNamed(t *testing.T) {
	set, _ := logs(t)
	other := fixture.SidecarSet("other", fixture.Sidecar("x"))
	other.Spec.Selector.MatchLabels["app"] = "shop"
	w := NewPodWhy(PodWhyInput{Pod: pod(t, "p", "agent:v1"), Sets: []v1alpha1.SidecarSet{*set, *other}})
	golden(t, "why-pod", w.Text)
	upgrade := func(p *corev1.Pod, change func(*v1alpha1.SidecarSet)) string {
		one := set.DeepCopy()
		change(one)
		return NewPodWhy(PodWhyInput{Pod: p, Sets: []v1alpha1.SidecarSet{*one}}).Sets[0].Upgrade
	}
	same := func(*v1alpha1.SidecarSet) {}
	assert.Equal(t, "Updated", upgrade(pod(t, "p", "agent:v2"), same))
	assert.Equal(t, "Failing: agent: ImagePullBackOff, image agent:v2 (kubectl sidecarset undo logs)", upgrade(pod(t, "p", "agent:v2", written(t, time.Second, "ErrImagePull")), same))
	assert.Equal(t, "NotUpgradable: differs in more than images (kubectl sidecarset restart logs)", upgrade(pod(t, "p", "agent:v1", notUpgradable), same))
	assert.Equal(t, "Failing: agent: ImagePullBackOff, image agent:v1; differs in more than images (kubectl sidecarset restart logs)", upgrade(pod(t, "p", "agent:v1", notUpgradable, func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "agent", Image: "agent:v1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}
	}), same))
	assert.Equal(t, "NotUpgradable: its Job counts a restart of a sidecar as a failure (backoffLimit)", upgrade(pod(t, "p", "agent:v1", func(p *corev1.Pod) {
		p.Spec.RestartPolicy, p.OwnerReferences = corev1.RestartPolicyOnFailure, []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "once", Controller: new(true)}}
	}), same))
	assert.Equal(t, `Old: spec.updateStrategy.paused is true (kubectl sidecarset resume logs)`, upgrade(pod(t, "p", "agent:v1"), func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Paused = true }))
	assert.Contains(t, upgrade(pod(t, "p", "agent:v1"), func(s *v1alpha1.SidecarSet) { s.Spec.Selector.MatchLabels["app"] = "x" }), "does not match it any more")
	assert.Contains(t, upgrade(pod(t, "p", "agent:v1", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }), same), "lacks containers")
	assert.Equal(t, "Upgrading: agent: still runs agent:v1; WorkerUnavailable (kubectl sidecarset check)", upgrade(pod(t, "p", "agent:v2", written(t, 0, "")), func(s *v1alpha1.SidecarSet) {
		s.Status.Conditions[0].Reason = v1alpha1.ReasonWorkerUnavailable
	}))
	assert.Contains(t, upgrade(pod(t, "p", "agent:v1", damaged), same), "not managed: its annotations cannot be read: ")
	bare := upgrade(pod(t, "p", "agent:v1", damaged, func(p *corev1.Pod) { p.OwnerReferences = nil }), same)
	assert.Contains(t, bare, "create it from a manifest without this annotation", "a copy of the pod has the same annotation")
}

// damaged makes the record of a pod unreadable.
func damaged(p *corev1.Pod) { p.Annotations[v1alpha1.HashAnnotation] = "{" }
