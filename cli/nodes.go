package cli

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/kube"
)

// maxNodes limits the nodes that a command reads.
const maxNodes = 5

var errEnoughNodes = errors.New("enough nodes are read")

// nodes lists the names of nodes once, reads each node once, and reads at most maxNodes nodes.
func (c *cluster) nodes(ctx context.Context, now time.Time) view.Nodes {
	type answer struct {
		node *corev1.Node
		err  error
	}
	known := map[string]answer{}
	return view.Nodes{Now: now, List: func() (sets.Set[string], error) { return c.nodeNames(ctx) }, Get: func(name string) (*corev1.Node, error) {
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

// nodeNames lists the nodes without their content, from the cache of the API server.
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

// domains returns the function that finds the domain of a node by a label of nodes. Nodes are listed
// only for a rollout with a limit of domains.
func (c *cluster) domains(ctx context.Context) func(topologyKey string) (func(node string) string, error) {
	nodes := kube.NewNodeLabels(c.live, clock.RealClock{})
	return func(topologyKey string) (func(node string) string, error) {
		return nodes.Values(ctx, topologyKey, func(func(string) bool) {})
	}
}
