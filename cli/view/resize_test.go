package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
)

func TestSpec7_9_APlanNamesThePodsThatCannotBeResized(t *testing.T) {
	stored, _ := logs(t)
	stored.Spec.Containers[0].Resources = fixture.Memory("64Mi")
	fixture.Hashed(stored)
	recorded, err := revision.New(stored, "system", 1)
	require.NoError(t, err)
	sized := func(p *corev1.Pod) {
		recordVersion(t, p, stored)
		p.Spec.Containers[1].Image, p.Spec.Containers[1].Resources = stored.Spec.Containers[0].Image, fixture.Memory("64Mi")
		p.Status.ObservedGeneration, p.Status.QOSClass = 1, corev1.PodQOSBurstable
	}
	unobserved := pod(t, "b", "agent:v1", sized, func(p *corev1.Pod) { p.Status.ObservedGeneration, p.Status.StartTime = 0, new(ago(time.Hour)) })
	wanted := stored.DeepCopy()
	wanted.Spec.Containers[0].Resources = fixture.Memory("96Mi")
	fixture.Hashed(wanted)
	p, err := NewPlan(&PlanInput{Input: Input{Set: wanted, Revisions: []*appsv1.ControllerRevision{recorded}, Pods: []*corev1.Pod{pod(t, "a", "agent:v1", sized), unobserved}}, Stored: stored})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"default/a"}}, p.Batches)
	require.Len(t, p.Stay, 1)
	assert.Equal(t, StayingPod{"default/b", "cannot be upgraded in place: spec.containers[agent].resources (the kubelet of the pod does not report which resize it has observed (Kubernetes 1.34 and newer))"}, p.Stay[0])
}

func TestSpec7_9_WhyNamesTheReasonOfADeferredResize(t *testing.T) {
	set, _ := logs(t)
	deferred := pod(t, "p", "agent:v2", func(p *corev1.Pod) {
		p.Annotations[v1alpha1.ResizeAnnotation] = `{"logs":"` + set.Annotations[v1alpha1.HashAnnotation] + `"}`
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred})
	})
	why := NewPodWhy(PodWhyInput{Pod: deferred, Sets: []v1alpha1.SidecarSet{*set}}).Sets[0].Upgrade
	assert.Equal(t, "Upgrading: PodResizePending: Deferred (kubectl describe pod p -n default)", why)
}

// The kubelets defer the resize to the stored version. A plan for other content upgrades all pods.
func TestSpec7_9_APlanOfTheNextContentDoesNotWaitForResizes(t *testing.T) {
	set, sorted := logs(t)
	set.Status.Rollout = nil
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	in := &PlanInput{Input: Input{Set: set.DeepCopy(), Revisions: sorted}, Stored: set, Policies: []outriggerv1.RolloutPolicy{*edge()}}
	in.Set.Spec.Containers[0].Image = "agent:v3"
	fixture.Hashed(in.Set)
	for i := range 40 {
		in.Pods = append(in.Pods, pod(t, fmt.Sprintf("web-%02d", i), "agent:v2", func(p *corev1.Pod) {
			p.Annotations[v1alpha1.ResizeAnnotation] = `{"logs":"` + set.Annotations[v1alpha1.HashAnnotation] + `"}`
			p.Spec.Containers[1].ResizePolicy = []corev1.ContainerResizePolicy{{RestartPolicy: corev1.RestartContainer}}
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred})
		}))
	}
	p, err := NewPlan(in)
	require.NoError(t, err)
	assert.Equal(t, 40, p.upgraded(), p.stepLines())
}
