package cli

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/kube"
)

// maxNodes limits the nodes that a command reads.
const maxNodes = 5

var errEnoughNodes = errors.New("enough nodes are read")

// nodes reads each node once, and at most maxNodes of them.
func (c *cluster) nodes(ctx context.Context, now time.Time) view.Nodes {
	type answer struct {
		node *corev1.Node
		err  error
	}
	known := map[string]answer{}
	return view.Nodes{Now: now, Get: func(name string) (*corev1.Node, error) {
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

// domains returns the function that finds the domain of a node by a label of nodes. Nodes are listed
// only for a rollout with a limit of domains.
func (c *cluster) domains(ctx context.Context) func(topologyKey string) (func(node string) string, error) {
	nodes := kube.NewNodeLabels(c.live, clock.RealClock{})
	return func(topologyKey string) (func(node string) string, error) {
		return nodes.Values(ctx, topologyKey, func(func(string) bool) {})
	}
}
