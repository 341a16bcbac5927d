package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/kube"
)

const (
	// maxNodes limits the nodes that a command reads one by one.
	maxNodes = 5
	// maxListedNodes is the maximum number of nodes of a cluster in which the command list looks for lost
	// nodes.
	maxListedNodes = 500
)

var errEnoughNodes = errors.New("enough nodes are read")

// nodes returns a reader of nodes. The reader reads each node at most once, and reads at most maxNodes nodes.
func (c *cluster) nodes(ctx context.Context, now time.Time) view.Nodes {
	type answer struct {
		node *corev1.Node
		err  error
	}
	known := map[string]answer{}
	notReady := func() ([]corev1.Node, error) { return c.notReadyNodes(ctx) }
	return view.Nodes{Now: now, NotReady: notReady, List: func() (sets.Set[string], error) { return c.nodeNames(ctx) }, Get: func(name string) (*corev1.Node, error) {
		one, ok := known[name]
		switch {
		case ok:
			return one.node, one.err
		case len(known) == maxNodes:
			return nil, errEnoughNodes
		}
		one.node = &corev1.Node{}
		one.err = c.live.Get(ctx, client.ObjectKey{Name: name}, one.node)
		known[name] = one
		return one.node, one.err
	}}
}

// nodeNames lists the names of the nodes from the cache of the API server.
func (c *cluster) nodeNames(ctx context.Context) (sets.Set[string], error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := c.live.List(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, err
	}
	names := sets.New[string]()
	for i := range list.Items {
		names.Insert(list.Items[i].Name)
	}
	return names, nil
}

// listNodes lists the nodes. In a cluster with more than maxListedNodes nodes, listNodes returns no nodes,
// and all is false.
func (c *cluster) listNodes(ctx context.Context) (nodes []corev1.Node, all bool, err error) {
	var list corev1.NodeList
	if err := c.live.List(ctx, &list, client.Limit(maxListedNodes)); err != nil || list.Continue != "" {
		return nil, false, err
	}
	return list.Items, true, nil
}

// notReadyNodes returns the nodes that are not ready. In a cluster with more than maxListedNodes nodes,
// notReadyNodes returns no nodes.
func (c *cluster) notReadyNodes(ctx context.Context) ([]corev1.Node, error) {
	nodes, _, err := c.listNodes(ctx)
	return slices.DeleteFunc(nodes, func(node corev1.Node) bool { return view.NodeReady(&node) }), err
}

// lostNodes returns the lost nodes of the pods of each SidecarSet. In a cluster with more than maxListedNodes
// nodes, or if nodes or pods cannot be read, lostNodes returns nil, because the command list also works
// without nodes.
func (c *cluster) lostNodes(ctx context.Context, all []v1alpha1.SidecarSet, now time.Time) map[string]view.Lost {
	pods, err := c.podsOfLostNodes(ctx)
	if err != nil || len(pods) == 0 {
		return nil
	}
	found, nodes, labels := map[string]view.Lost{}, c.nodes(ctx, now), c.namespaceLabels(ctx)
	for i := range all {
		in := &view.Input{Set: &all[i], Pods: pods, NamespaceLabels: labels, Nodes: nodes, SystemNamespace: c.systemNamespace}
		if lost, err := view.FindLost(in); err == nil { // The command status shows the error.
			found[all[i].Name] = lost
		}
	}
	return found
}

// podsOfLostNodes lists the pods that run on a node that is not ready or does not exist. A field selector
// excludes the other pods, because a cluster may have many pods.
func (c *cluster) podsOfLostNodes(ctx context.Context) ([]*corev1.Pod, error) {
	nodes, all, err := c.listNodes(ctx)
	if err != nil || !all {
		return nil, err
	}
	const nodeName = "spec.nodeName"
	elsewhere := []fields.Selector{fields.OneTermNotEqualSelector(nodeName, "")}
	for i := range nodes {
		if view.NodeReady(&nodes[i]) {
			elsewhere = append(elsewhere, fields.OneTermNotEqualSelector(nodeName, nodes[i].Name))
		}
	}
	return listPods(ctx, c.live, pageSize, client.MatchingFieldsSelector{Selector: fields.AndSelectors(elsewhere...)})
}

// domains returns a function that lists the nodes, and maps each node to its topology domain, the value of the
// label topologyKey. The planner calls this function only for a rollout with a limit of domains.
func (c *cluster) domains(ctx context.Context) func(topologyKey string) (func(node string) string, error) {
	nodes := kube.NewNodeLabels(c.live, clock.RealClock{})
	return func(topologyKey string) (func(node string) string, error) {
		return nodes.Values(ctx, topologyKey, func(func(string) bool) {})
	}
}

// waitingPods reads, for each SidecarSet, the pod that the status names as an example of the pods for which
// the rollout waits. waitingPods reads at most maxAskedRuns pods, and omits pods that cannot be read.
func (c *cluster) waitingPods(ctx context.Context, all []v1alpha1.SidecarSet) map[string]*corev1.Pod {
	found := map[string]*corev1.Pod{}
	left := maxAskedRuns
	for i := range all {
		namespace, pod := view.WaitsFor(&all[i])
		if pod == "" || left == 0 {
			continue
		}
		left--
		one := &corev1.Pod{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pod}, one); err == nil {
			found[all[i].Name] = one
		}
	}
	return found
}
