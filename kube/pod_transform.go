package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// NewPodTransform returns the cache.Options.Transform of pods. It leaves of a pod what
// somebody reads of a cached one; a field that is read from now on has to be added here.
// It changes the pod in place, because the relay and the cache hold the same object.
func NewPodTransform() toolscache.TransformFunc {
	return (&podTransform{interned: newInterner()}).strip
}

type podTransform struct {
	interned *interner
}

// strip keeps all annotations: patchPodMetadata may name any of them, and would take one
// that is missing here for one that the pod lacks.
func (t *podTransform) strip(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("the pod cache gets a %T", o)
	}
	*pod = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.interned.text(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: t.interned.labels(pod.Labels), Annotations: t.interned.annotations(pod.Annotations),
		},
		Spec: corev1.PodSpec{
			NodeName:          t.interned.text(pod.Spec.NodeName),
			PriorityClassName: t.interned.text(pod.Spec.PriorityClassName),
			InitContainers:    t.interned.containers(pod.Spec.InitContainers),
			Containers:        t.interned.containers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodPhase(t.interned.text(string(pod.Status.Phase))),
			Conditions:            t.conditions(pod.Status.Conditions),
			InitContainerStatuses: t.statuses(pod.Status.InitContainerStatuses),
			ContainerStatuses:     t.statuses(pod.Status.ContainerStatuses),
		},
	}
	return pod, nil
}

func (t *podTransform) conditions(all []corev1.PodCondition) []corev1.PodCondition {
	kept := make([]corev1.PodCondition, 0, 2)
	for i := range all {
		condition := &all[i]
		switch condition.Type {
		case corev1.PodReady:
			kept = append(kept, corev1.PodCondition{
				Type: corev1.PodReady, Status: t.conditionStatus(condition), LastTransitionTime: condition.LastTransitionTime,
			})
		case v1alpha1.UpgradableCondition:
			kept = append(kept, corev1.PodCondition{
				Type: v1alpha1.UpgradableCondition, Status: t.conditionStatus(condition), LastTransitionTime: condition.LastTransitionTime,
				// What each set has said of the pod.
				Message: t.interned.text(condition.Message),
			})
		}
	}
	return exactly(kept)
}

func (t *podTransform) conditionStatus(condition *corev1.PodCondition) corev1.ConditionStatus {
	return corev1.ConditionStatus(t.interned.text(string(condition.Status)))
}

func (t *podTransform) statuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, 0, len(all))
	for i := range all {
		status := &all[i]
		kept = append(kept, corev1.ContainerStatus{
			Name: t.interned.text(status.Name), Image: t.interned.text(status.Image), ImageID: t.interned.text(status.ImageID),
			Ready: status.Ready, RestartCount: status.RestartCount, State: t.state(&status.State),
		})
	}
	return exactly(kept)
}

func (t *podTransform) state(state *corev1.ContainerState) (kept corev1.ContainerState) {
	if state.Waiting != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: t.interned.text(state.Waiting.Reason)}
	}
	if state.Running != nil {
		kept.Running = &corev1.ContainerStateRunning{StartedAt: state.Running.StartedAt}
	}
	return kept
}

// exactly returns nil for an empty slice, and no more room than is used for others.
func exactly[T any](all []T) []T {
	if len(all) == 0 {
		return nil
	}
	if len(all) == cap(all) {
		return all
	}
	return append(make([]T, 0, len(all)), all...)
}

// namespaceTransform leaves the labels of a namespace, by which sets select and admission is off.
func namespaceTransform(o any) (any, error) {
	namespace, ok := o.(*corev1.Namespace)
	if !ok {
		return nil, fmt.Errorf("the namespace cache gets a %T", o)
	}
	*namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion, Labels: namespace.Labels,
	}}
	return namespace, nil
}
