package podstate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Owner returns the kind and the name of the controller of a pod, or empty strings. For a ReplicaSet whose
// name ends with the hash of the template, Owner returns the Deployment.
func Owner(pod *corev1.Pod) (kind, name string) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return "", ""
	}
	if hash := pod.Labels["pod-template-hash"]; controller.Kind == "ReplicaSet" && hash != "" {
		if deployment, ok := strings.CutSuffix(controller.Name, "-"+hash); ok {
			return "Deployment", deployment
		}
	}
	return controller.Kind, controller.Name
}

// RunsToCompletion reports whether the controller of a pod is a Job, which runs its pods to completion.
func RunsToCompletion(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && controller.Kind == "Job" && strings.HasPrefix(controller.APIVersion, "batch/")
}

// CountsRestarts reports whether a restart of a sidecar may fail the Job of a pod. If the restartPolicy of the
// pods is OnFailure, the Job counts the restarts of all containers toward its backoffLimit.
func CountsRestarts(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && RunsToCompletion(pod)
}

// Controlled reports whether a pod has a controller, which recreates the pod.
func Controlled(pod *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(pod) != nil }
