package view

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Nodes reads the nodes of stuck pods. The zero value reads none.
type Nodes struct {
	Get func(name string) (*corev1.Node, error)
	Now time.Time
}

// problem names the node of a pod if the node is lost, with a command. It is empty if the node is
// not lost, or cannot be read.
func (n Nodes) problem(pod *Pod) string {
	if n.Get == nil || pod.Node == "" {
		return ""
	}
	node, err := n.Get(pod.Node)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("its node %s does not exist: kubectl delete pods -n %s --field-selector spec.nodeName=%[1]s --force", pod.Node, pod.Namespace)
	}
	if err != nil {
		return ""
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Sprintf("its node %s is NotReady for %s: kubectl describe node %[1]s", pod.Node, age(n.Now, c.LastTransitionTime.Time))
		}
	}
	return ""
}

// explainNodes adds lost nodes to the reasons of the listed pods that are not ready, or whose
// upgrade is in progress.
func (r *Rollout) explainNodes(nodes Nodes) {
	for _, pod := range r.pods() {
		if pod.counted() || pod.Ready && pod.tone() != Busy {
			continue
		}
		if problem := nodes.problem(pod); problem != "" {
			pod.Reason += "; " + problem
			pod.onLostNode = true
		}
	}
}
