package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/outrigger/outrigger/internal/rollout"
)

// Nodes reads the nodes of pods. The zero value reads no nodes.
type Nodes struct {
	Get func(name string) (*corev1.Node, error)
	// List returns the names of all nodes.
	List func() (sets.Set[string], error)
	// NotReady returns the nodes that are not ready, sorted by name.
	NotReady func() ([]corev1.Node, error)
	Now      time.Time
}

// maxNotReadyNodes limits the lines about nodes that are not ready.
const maxNotReadyNodes = 3

// onNotReadyNodes returns lines about the nodes that are not ready and have pods of the SidecarSet, at most
// maxNotReadyNodes lines. A node is omitted if the line of a pod names the node. The pods of a node that is not
// ready may still be ready, because Kubernetes marks these pods as not ready later.
func (r *Rollout) onNotReadyNodes(nodes Nodes) (found []string) {
	if nodes.NotReady == nil {
		return nil
	}
	notReady, err := nodes.NotReady()
	if err != nil {
		return nil
	}
	pods, named := map[string]int{}, map[string]bool{}
	for _, pod := range r.pods() {
		pods[pod.Node]++
		named[pod.Node] = named[pod.Node] || pod.nodeCommand != ""
	}
	for i := range notReady {
		name := notReady[i].Name
		if pods[name] == 0 || named[name] || len(found) == maxNotReadyNodes {
			continue
		}
		since := ""
		for _, c := range notReady[i].Status.Conditions {
			if c.Type == corev1.NodeReady {
				since = " for " + age(nodes.Now, c.LastTransitionTime.Time)
			}
		}
		found = append(found, fmt.Sprintf("node %s of %s is NotReady%s: kubectl describe node %[1]s", name, rollout.Count(pods[name], "pod"), since))
	}
	return found
}

// LostPod is a pod that is ready in the API server although the node of the pod does not exist.
type LostPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
}

// problem describes the node of a pod if the node is lost, and returns a command. If the node is not lost or
// cannot be read, problem and command are empty.
func (n Nodes) problem(pod *Pod) (problem, command string) {
	if n.Get == nil || pod.Node == "" {
		return "", ""
	}
	node, err := n.Get(pod.Node)
	if apierrors.IsNotFound(err) {
		return "its node " + pod.Node + " does not exist", deletePodsOf(pod.Namespace, pod.Node)
	}
	if err != nil {
		return "", ""
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Sprintf("its node %s is NotReady for %s", pod.Node, age(n.Now, c.LastTransitionTime.Time)), "kubectl describe node " + pod.Node
		}
	}
	return "", ""
}

// NodeReady reports whether the condition Ready of a node is True or absent.
func NodeReady(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// Lost describes the lost nodes of the pods of a SidecarSet.
type Lost struct {
	// Nodes contains the sorted names of the nodes that do not exist or are not ready.
	Nodes []string
	// Note describes the first node, with a command.
	Note string
	// Ready is the number of pods that are ready in the API server although their nodes do not exist. Updated
	// is the number of pods in Ready that the status counts as updated and ready.
	Ready, Updated int
}

// FindLost finds the lost nodes of the pods of a SidecarSet.
func FindLost(in *Input) (found Lost, err error) {
	matched, version, err := in.matched()
	if err != nil {
		return found, err
	}
	nodes := map[string]string{}
	for i := range matched {
		pod := newPod(&matched[i], version, "")
		problem, command := in.Nodes.problem(&pod)
		if problem == "" {
			continue
		}
		gone := pod.Ready && in.Nodes.missing(pod.Node)
		if gone {
			found.Ready++
		}
		if gone && pod.Phase == PodUpdated {
			found.Updated++
		}
		nodes[pod.Node] = strings.TrimPrefix(problem, "its ") + " (" + command + ")"
	}
	found.Nodes = slices.Sorted(maps.Keys(nodes))
	if n := len(found.Nodes); n > 0 {
		found.Note = nodes[found.Nodes[0]]
		if n > 1 {
			found.Note += "; and " + rollout.Count(n-1, "node") + " more"
		}
	}
	return found, nil
}

// deletePodsOf returns the command that deletes the pods of a deleted node, so that controllers recreate the
// pods.
func deletePodsOf(namespace, node string) string {
	return fmt.Sprintf("kubectl delete pods -n %s --field-selector spec.nodeName=%s --force", namespace, node)
}

// missing reports whether a node does not exist. If the node cannot be read, missing returns false.
func (n Nodes) missing(node string) bool {
	_, err := n.Get(node)
	return apierrors.IsNotFound(err)
}

// lost returns the pods whose nodes do not exist. If a node is absent from the list, lost reads the node
// again, because the list may be older than the node.
func (n Nodes) lost(pods []*Pod) []*Pod {
	if n.List == nil || n.Get == nil || len(pods) == 0 {
		return nil
	}
	known, err := n.List()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(pods, func(pod *Pod) bool { return pod.Node == "" || known.Has(pod.Node) || !n.missing(pod.Node) })
}

// addLostPods finds the pods that are ready in the API server although their nodes do not exist. addLostPods
// marks these pods as not ready.
func (r *Rollout) addLostPods(nodes Nodes) {
	var ready []*Pod
	for _, pod := range r.pods() {
		if pod.Ready {
			ready = append(ready, pod)
		}
	}
	before := r.Counts.UpdatedReady
	for _, pod := range nodes.lost(ready) {
		pod.Ready = false
		r.Counts.Ready--
		if pod.Phase == PodUpdated {
			r.Counts.UpdatedReady--
		}
		if pod.nodeCommand == "" {
			pod.lost, pod.Reason = true, "its node "+pod.Node+" does not exist"
			r.LostPods = append(r.LostPods, LostPod{pod.Namespace, pod.Name, pod.Node})
		}
	}
	const counted = "%d of them ready"
	r.Message = strings.Replace(r.Message, fmt.Sprintf(counted, before), fmt.Sprintf(counted, r.Counts.UpdatedReady), 1)
}

// lostPodsLine describes the lost pods, or returns an empty string if there are no lost pods.
func (r *Rollout) lostPodsLine() string {
	if len(r.LostPods) == 0 {
		return ""
	}
	first := r.LostPods[0]
	if n := len(r.LostPods); n > 1 {
		return fmt.Sprintf("%d pods are shown as ready on nodes that do not exist, such as %s/%s on %s", n, first.Namespace, first.Name, first.Node)
	}
	return fmt.Sprintf("pod %s/%s is ready in the API server, but its node %s does not exist", first.Namespace, first.Name, first.Node)
}

// deleteLostPods returns the command that deletes lost pods, so that controllers recreate the pods.
func (r *Rollout) deleteLostPods() string {
	if len(r.LostPods) == 0 {
		return ""
	}
	first := r.LostPods[0]
	return deletePodsOf(first.Namespace, first.Node)
}

// mayWaitForNode reports whether the output lists the pod, and the pod is not ready or has an upgrade in
// progress.
func (p *Pod) mayWaitForNode() bool { return !p.counted() && (!p.Ready || p.tone() == Busy) }

// explainNodes adds lost nodes to the reasons of the listed pods that are not ready or have an upgrade in
// progress.
func (r *Rollout) explainNodes(nodes Nodes) {
	for _, pod := range r.pods() {
		if !pod.mayWaitForNode() {
			continue
		}
		if problem, command := nodes.problem(pod); problem != "" {
			pod.Reason += "; " + problem + ": " + command
			pod.nodeCommand = command
		}
	}
}
