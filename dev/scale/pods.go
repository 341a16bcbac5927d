package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/upgrade"
)

const (
	oldImage, newImage = "side:v1", "side:v2"
	// medianRestart is how long half of the pods take at most to be ready again.
	// One in forty takes more than three times as long.
	medianRestart = 5 * time.Second
	restartSigma  = 0.6
)

// newSet is the set that is rolled out.
func newSet(window string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u", Generation: 2, ResourceVersion: "1"}}
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "new", v1alpha1.HashWithoutImageAnnotation: "blank"}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: newImage}}}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.Parse(window))
	return set
}

// stages are what a pod is before its upgrade, while it restarts, and after it. Pods
// share them, as they share in the cache what they have in common.
type stages struct{ before, restarting, after corev1.Pod }

func newStages(set *v1alpha1.SidecarSet) (*stages, error) {
	var s stages
	s.before.Labels = set.Spec.Selector.MatchLabels
	s.before.ResourceVersion = "1"
	s.before.Annotations = map[string]string{
		v1alpha1.InjectedListAnnotation:     set.Name,
		v1alpha1.HashAnnotation:             fmt.Sprintf(`{%q:{"hash":"old"}}`, set.Name),
		v1alpha1.HashWithoutImageAnnotation: fmt.Sprintf(`{%q:{"hash":"blank"}}`, set.Name),
	}
	s.before.Spec.NodeName = "node"
	s.before.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:v1"}, {Name: "side", Image: oldImage}}
	s.before.Status = statusOf(oldImage, 0, true)
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	patch, err := upgrade.Patch(&s.before, upgrade.Target{Version: version, Revision: "r", SetVersion: set.ResourceVersion}, metav1.NewTime(time.Unix(0, 0)))
	if err != nil {
		return nil, err
	}
	document, err := json.Marshal(&s.before)
	if err != nil {
		return nil, err
	}
	patched, err := strategicpatch.StrategicMergePatch(document, patch, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patched, &s.restarting); err != nil {
		return nil, err
	}
	s.restarting.Status = statusOf(oldImage, 0, false)
	s.restarting.DeepCopyInto(&s.after)
	s.after.Status = statusOf(newImage, 1, true)
	return &s, nil
}

func statusOf(image string, restarts int32, ready bool) corev1.PodStatus {
	condition := corev1.ConditionFalse
	if ready {
		condition = corev1.ConditionTrue
	}
	return corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: condition, LastTransitionTime: metav1.NewTime(time.Unix(int64(restarts), 0))}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", Image: "app:v1", ImageID: "id-app:v1", Ready: true},
			{Name: "side", Image: image, ImageID: "id-" + image, RestartCount: restarts, Ready: ready},
		},
	}
}

// pod is one of the pods at a stage. Each is an object of its own, as informers
// replace objects.
func (s *stages) pod(i int, stage *corev1.Pod) *corev1.Pod {
	pod := *stage
	pod.Namespace, pod.Name = "default", fmt.Sprintf("web-%07d", i)
	pod.UID = types.UID(pod.Name)
	return &pod
}

// restartTime is how long a pod takes to be ready again.
func restartTime(seed uint64, i int) time.Duration {
	random := rand.New(rand.NewPCG(seed, uint64(i)))
	return time.Duration(float64(medianRestart) * math.Exp(restartSigma*random.NormFloat64()))
}
