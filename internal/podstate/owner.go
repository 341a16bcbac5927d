package podstate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Owner is the workload of a pod. For a ReplicaSet of a Deployment, whose name ends with the
// hash of the template, it is the Deployment.
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

// RecreateCommand is the command that recreates a pod. It is empty for a pod without a
// controller, which nothing recreates.
func RecreateCommand(pod *corev1.Pod) string {
	switch kind, name := Owner(pod); kind {
	case "":
		return ""
	case "Deployment", "StatefulSet", "DaemonSet":
		return fmt.Sprintf("kubectl rollout restart %s/%s -n %s", strings.ToLower(kind), name, pod.Namespace)
	}
	return fmt.Sprintf("kubectl delete pod %s -n %s", pod.Name, pod.Namespace)
}
