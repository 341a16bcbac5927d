package cli

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxRolePods limits the pods of a role that check names.
const maxRolePods = 3

// podsOf names the pods of a role that does not respond, and the next command. Without pods it says what
// that means.
func (i *installation) podsOf(ctx context.Context, role string) string {
	const component = "app.kubernetes.io/component"
	kubectl := "kubectl -n " + i.systemNamespace + " "
	selected := " -l " + component + "=" + role
	var pods corev1.PodList
	err := i.List(ctx, &pods, client.InNamespace(i.systemNamespace), client.MatchingLabels{component: role}, client.Limit(maxRolePods))
	switch {
	case err != nil:
		return kubectl + "get deployment,pods" + selected
	case len(pods.Items) == 0:
		return fmt.Sprintf("namespace %s has no pod of the %s: start its process if it runs outside of the cluster; otherwise its Deployment has no replica: %sget deployment,replicaset%s",
			i.systemNamespace, role, kubectl, selected)
	}
	states, next := make([]string, len(pods.Items)), "logs"
	for n := range pods.Items {
		state := rolePodState(&pods.Items[n])
		states[n] = "pod " + pods.Items[n].Name + " is " + state
		if state != podReady {
			next = "describe pods"
		}
	}
	return strings.Join(states, ", ") + ": " + kubectl + next + selected
}

const podReady = "Ready"

// rolePodState is ready, or the reason why a pod of a role is not ready.
func rolePodState(pod *corev1.Pod) string {
	state := string(pod.Status.Phase) + " and not ready"
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			state = podReady
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			state = c.Reason
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			state = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			state = c.State.Terminated.Reason
		}
	}
	if pod.DeletionTimestamp != nil {
		state = "Terminating"
	}
	return state
}
