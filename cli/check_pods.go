package cli

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxRolePods is the maximum number of pods of a role that the command check names.
const maxRolePods = 3

// componentLabel is the label of the Deployment and the pods of a role.
const componentLabel = "app.kubernetes.io/component"

// podsOf returns the state of the Deployment or the pods of a role that does not respond, and the next
// command.
func (c *cluster) podsOf(ctx context.Context, role string) string {
	kubectl := "kubectl -n " + c.systemNamespace + " "
	selected := " -l " + componentLabel + "=" + role
	deployments, err := c.deploymentsOf(ctx, role)
	var pods corev1.PodList
	if err == nil {
		err = c.live.List(ctx, &pods, client.InNamespace(c.systemNamespace), client.MatchingLabels{componentLabel: role}, client.Limit(maxRolePods))
	}
	switch {
	case err != nil:
		return kubectl + "get deployment,pods" + selected
	case len(pods.Items) > 0:
	case len(deployments) == 0:
		return fmt.Sprintf("namespace %s has no Deployment of the %s: start its process outside of the cluster again (on a local stack: make start ROLE=%s), or install it",
			c.systemNamespace, role, localName(role))
	case ptr.Deref(deployments[0].Spec.Replicas, 1) == 0:
		return fmt.Sprintf("deployment/%s has 0 replicas: %sscale deployment/%[1]s --replicas=2", deployments[0].Name, kubectl)
	default:
		return fmt.Sprintf("deployment/%s has no pod: %sdescribe replicaset%s", deployments[0].Name, kubectl, selected)
	}
	states, next := make([]string, len(pods.Items)), "logs"
	for n := range pods.Items {
		state := rolePodState(&pods.Items[n])
		states[n] = "pod " + pods.Items[n].Name + " is " + state
		if state != podReady {
			next = "describe pods"
		}
	}
	command := kubectl + next + selected
	if next == "logs" && len(deployments) > 0 {
		command += "; to restart: " + kubectl + "rollout restart deployment/" + deployments[0].Name
	}
	return strings.Join(states, ", ") + ": " + command
}

func (c *cluster) deploymentsOf(ctx context.Context, role string) ([]appsv1.Deployment, error) {
	var found appsv1.DeploymentList
	err := c.live.List(ctx, &found, client.InNamespace(c.systemNamespace), client.MatchingLabels{componentLabel: role}, client.Limit(1))
	return found.Items, err
}

// localName returns the name of the process of a role on a local stack. A local stack may have several
// workers.
func localName(role string) string {
	if role == "worker" {
		return "worker-1"
	}
	return role
}

// temporalNext returns the command that a user runs next if Temporal does not respond. If the cluster has no
// Deployment of the operator, temporalNext assumes that Temporal runs outside of the cluster, too.
func (c *cluster) temporalNext(ctx context.Context) string {
	const after = "rollouts continue by themselves once it responds; "
	if deployments, err := c.deploymentsOf(ctx, "operator"); err == nil && len(deployments) == 0 {
		return after + "start its process again (on a local stack: make start ROLE=temporal)"
	}
	return after + "find the pods of a server in this cluster: kubectl get pods -A -l 'app.kubernetes.io/name in (temporal,outrigger-temporal)'"
}

const podReady = "Ready"

// rolePodState returns podReady, or the reason why a pod of a role is not ready.
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
