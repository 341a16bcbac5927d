package watches

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

// NewPodTransform returns the transform of cached pods. The transform keeps only the fields that a role reads.
// If a role reads another field of cached pods, strip must keep the field.
func NewPodTransform() toolscache.TransformFunc {
	return (&podTransform{pool: newStringPool()}).strip
}

type podTransform struct {
	mu   sync.Mutex
	pool *stringPool
	// reported replaces the resources that a kubelet reports, except for containers that a resize may restart. All
	// cached pods share reported, so reported is immutable.
	reported corev1.ResourceRequirements
	// ended replaces the state of each terminated container, because roles read only whether a container has
	// ended. All cached pods share ended, so ended is immutable.
	ended corev1.ContainerStateTerminated
}

// strip removes the fields that no role reads. strip keeps all annotations, because patchPodMetadata may name
// any annotation, and an upgrade must not overwrite an annotation that the pod already has.
func (t *podTransform) strip(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("the pod cache gets a %T", o)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	*pod = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.pool.text(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: t.pool.labels(pod.Labels), Annotations: t.pool.annotations(pod.Annotations),
			OwnerReferences: t.controller(pod),
		},
		Spec: corev1.PodSpec{
			NodeName:          t.pool.text(pod.Spec.NodeName),
			PriorityClassName: t.pool.text(pod.Spec.PriorityClassName),
			RestartPolicy:     corev1.RestartPolicy(t.pool.text(string(pod.Spec.RestartPolicy))),
			InitContainers:    t.pool.containers(pod.Spec.InitContainers),
			Containers:        t.pool.containers(pod.Spec.Containers),
			Resources:         pod.Spec.Resources,
			OS:                windows(pod),
			ReadinessGates:    gates(pod),
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodPhase(t.pool.text(string(pod.Status.Phase))),
			StartTime:             pod.Status.StartTime,
			ObservedGeneration:    pod.Status.ObservedGeneration,
			QOSClass:              corev1.PodQOSClass(t.pool.text(string(pod.Status.QOSClass))),
			Conditions:            t.conditions(pod),
			InitContainerStatuses: t.statuses(pod.Status.InitContainerStatuses, pod.Spec.InitContainers),
			ContainerStatuses:     t.statuses(pod.Status.ContainerStatuses, pod.Spec.Containers),
		},
	}
	return pod, nil
}

// windows returns the operating system of a Windows pod, because a kubelet cannot resize a Windows pod. For
// other pods, windows returns nil.
func windows(pod *corev1.Pod) *corev1.PodOS {
	if podstate.Windows(pod) {
		return &corev1.PodOS{Name: corev1.Windows}
	}
	return nil
}

// gates returns the readiness gates of a pod that is not ready. No role reads the gates of a ready pod.
func gates(pod *corev1.Pod) []corev1.PodReadinessGate {
	if podstate.Ready(pod) {
		return nil
	}
	return pod.Spec.ReadinessGates
}

// controller returns the owner references of a pod, but keeps only the reference to the controller.
func (t *podTransform) controller(pod *corev1.Pod) []metav1.OwnerReference {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return nil
	}
	return []metav1.OwnerReference{{
		APIVersion: t.pool.text(controller.APIVersion), Kind: t.pool.text(controller.Kind), Name: t.pool.text(controller.Name), UID: types.UID(t.pool.text(string(controller.UID))), Controller: new(true),
	}}
}

func (t *podTransform) conditions(pod *corev1.Pod) (kept []corev1.PodCondition) {
	ready := podstate.Ready(pod)
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		switch condition.Type {
		case corev1.PodReady:
			kept = append(kept, t.condition(condition, ""))
		case corev1.ContainersReady:
			// Roles read ContainersReady only of pods that are not ready, to find out whether the node
			// responds.
			if !ready {
				kept = append(kept, t.condition(condition, ""))
			}
		case v1alpha1.UpgradableCondition:
			// The message states for each SidecarSet whether the pod is upgradable.
			kept = append(kept, t.condition(condition, condition.Message))
		case corev1.PodResizePending, corev1.PodResizeInProgress:
			resize := t.condition(condition, "")
			resize.Reason = t.pool.text(condition.Reason)
			kept = append(kept, resize)
		default:
			isGate := func(gate corev1.PodReadinessGate) bool { return gate.ConditionType == condition.Type }
			if !ready && slices.ContainsFunc(pod.Spec.ReadinessGates, isGate) {
				kept = append(kept, t.condition(condition, ""))
			}
		}
	}
	return kept
}

func (t *podTransform) condition(of *corev1.PodCondition, message string) corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.PodConditionType(t.pool.text(string(of.Type))), Status: corev1.ConditionStatus(t.pool.text(string(of.Status))),
		LastTransitionTime: of.LastTransitionTime, Message: t.pool.text(message),
	}
}

func (t *podTransform) statuses(all []corev1.ContainerStatus, containers []corev1.Container) []corev1.ContainerStatus {
	if len(all) == 0 {
		return nil
	}
	kept := make([]corev1.ContainerStatus, len(all))
	for i := range all {
		status := &all[i]
		kept[i] = corev1.ContainerStatus{
			Name: t.pool.text(status.Name), Image: t.pool.text(status.Image), ImageID: t.pool.text(status.ImageID),
			Ready: status.Ready, RestartCount: status.RestartCount, State: t.state(&status.State),
		}
		if status.Resources != nil {
			kept[i].Resources = t.resources(status, containers)
		}
	}
	return kept
}

// resources returns the amounts of CPU and memory that a kubelet reports for a container that a resize may restart,
// because an upgrade compares these amounts with the amounts in the spec. Of other containers, roles read only
// whether Resources is set, so all cached statuses share one value.
func (t *podTransform) resources(status *corev1.ContainerStatus, containers []corev1.Container) *corev1.ResourceRequirements {
	restarts := slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == status.Name && podstate.MayRestart(&c) })
	if !restarts {
		return &t.reported
	}
	return &corev1.ResourceRequirements{Requests: resizable(status.Resources.Requests), Limits: resizable(status.Resources.Limits)}
}

func (t *podTransform) state(state *corev1.ContainerState) (kept corev1.ContainerState) {
	if state.Waiting != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: t.pool.text(state.Waiting.Reason)}
		if strings.Contains(state.Waiting.Reason, "Image") {
			// The message names the image that the kubelet cannot pull.
			kept.Waiting.Message = t.pool.text(state.Waiting.Message)
		}
	}
	if state.Running != nil {
		kept.Running = &corev1.ContainerStateRunning{StartedAt: state.Running.StartedAt}
	}
	if state.Terminated != nil {
		kept.Terminated = &t.ended
	}
	return kept
}

// namespaceTransform keeps the labels of a namespace. SidecarSets select namespaces by label, and
// one label disables injection.
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
