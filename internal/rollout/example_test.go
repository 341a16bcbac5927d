package rollout_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/rollout"
)

// examplePods are ready and have an older version of the SidecarSet.
func examplePods(set *v1alpha1.SidecarSet, names ...string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range names {
		pod := fixture.Pod(fixture.Container("log-agent"))
		pod.Name, pod.UID = name, types.UID("uid-of-"+name)
		pod.Annotations = map[string]string{
			v1alpha1.InjectedListAnnotation:     "logs",
			v1alpha1.HashAnnotation:             `{"logs":{"hash":"older"}}`,
			v1alpha1.HashWithoutImageAnnotation: fixture.HashEntry(set, v1alpha1.HashWithoutImageAnnotation),
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pods = append(pods, pod)
	}
	return pods
}

func namesOf(pods []protocol.SelectedPod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

func ExampleNext() {
	set := fixture.SidecarSet("logs", fixture.Sidecar("log-agent"))
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2))
	set.Spec.UpdateStrategy.Partition = new(intstr.FromString("25%"))

	pods, err := rollout.Population(set, examplePods(set, "web-1", "web-2", "web-3", "web-4"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := rollout.Next(set, pods, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Phase, plan.Message)
	fmt.Println("now", namesOf(plan.Pods), "as slots become free", namesOf(plan.Queued))
	// Output:
	// Progressing 0 of 4 pods updated, 0 of them ready; 3 to go, 0 unavailable of 2 allowed
	// now [web-1 web-2] as slots become free [web-3]
}

func ExampleNext_refused() {
	set := fixture.SidecarSet("logs", fixture.Sidecar("log-agent"))
	pods, err := rollout.Population(set, examplePods(set, "web-1", "web-2"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := rollout.Next(set, pods, map[protocol.PodReference]bool{pods[0].Reference(): true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(namesOf(plan.Pods))
	// Output:
	// [web-2]
}

func ExamplePlan_Refill() {
	set := fixture.SidecarSet("logs", fixture.Sidecar("log-agent"))
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2))
	pods, err := rollout.Population(set, examplePods(set, "web-1", "web-2", "web-3"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := rollout.Next(set, pods, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	// The cache does not show one write yet. This write takes a slot.
	refill := plan.Refill(plan.Pods, nil, 1)
	fmt.Println("now", namesOf(refill.Now), "later", namesOf(refill.Left))
	// Output:
	// now [web-1] later [web-2]
}
