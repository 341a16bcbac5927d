package kube

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// nodesAge is the time after which the nodes are listed again. The labels of nodes rarely change.
	nodesAge = time.Minute
	// unknownNodesAge replaces nodesAge if the list lacks a needed node, such as a new node.
	unknownNodesAge = 2 * time.Second
	nodesPageSize   = 500
	// nodesTimeout limits a list of all pages.
	nodesTimeout = 30 * time.Second
)

// NodeLabels lists the values of labels of nodes. All callers of a process share the lists. NodeLabels does
// not watch nodes, because only rollouts whose RolloutPolicy limits domains need the labels.
type NodeLabels struct {
	reader client.Reader
	clock  clock.PassiveClock

	// listing merges concurrent lists for the same label.
	listing singleflight.Group
	mu      sync.Mutex
	// lists maps each label to the latest list.
	lists map[string]nodeValues
}

type nodeValues struct {
	// values maps the name of each node to the value of the label, which may be empty. The map is immutable,
	// because callers of Values read the map without a lock.
	values   map[string]string
	listedAt time.Time
}

// NewNodeLabels returns NodeLabels that list nodes with reader. reader should not be a cache, because a cache
// would watch all nodes.
func NewNodeLabels(reader client.Reader, clock clock.PassiveClock) *NodeLabels {
	return &NodeLabels{reader: reader, clock: clock, lists: map[string]nodeValues{}}
}

// Values returns a function that maps the name of a node to the value of the label. The value is empty if the
// node lacks the label or does not exist. needed contains the names of the nodes that the caller needs.
func (n *NodeLabels) Values(ctx context.Context, label string, needed iter.Seq[string]) (func(node string) string, error) {
	known := n.known(label)
	// A list that was already in progress may lack a new node, so a caller that joins the list may need another list.
	for began := n.clock.Now(); known.listedAt.Before(began) && known.outdated(n.clock, needed); known = n.known(label) {
		// Concurrent callers share one list, even if the first caller is canceled.
		answer := n.listing.DoChan(label, func() (any, error) { return nil, n.refresh(context.WithoutCancel(ctx), label) })
		var err error
		select {
		case result := <-answer:
			err = result.Err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("list nodes for the domains of label %s: %w (apply config/rbac if the permission is missing)", label, err)
		}
	}
	return func(node string) string { return known.values[node] }, nil
}

func (n *NodeLabels) known(label string) nodeValues {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lists[label]
}

func (n *NodeLabels) refresh(ctx context.Context, label string) error {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	listedAt := n.clock.Now()
	values, err := n.list(ctx, label)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists[label] = nodeValues{values: values, listedAt: listedAt}
	return nil
}

// outdated reports whether the list is too old, or lacks a needed node.
func (v nodeValues) outdated(clock clock.PassiveClock, needed iter.Seq[string]) bool {
	age := clock.Since(v.listedAt)
	return age >= nodesAge || age >= unknownNodesAge && !v.haveAll(needed)
}

func (v nodeValues) haveAll(needed iter.Seq[string]) bool {
	for node := range needed {
		if _, ok := v.values[node]; !ok && node != "" {
			return false
		}
	}
	return true
}

func (n *NodeLabels) list(ctx context.Context, label string) (map[string]string, error) {
	values := map[string]string{}
	for next := ""; ; {
		nodes := &metav1.PartialObjectMetadataList{}
		nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := n.reader.List(ctx, nodes, client.Limit(nodesPageSize), client.Continue(next)); err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			values[nodes.Items[i].Name] = nodes.Items[i].Labels[label]
		}
		if next = nodes.Continue; next == "" {
			return values, nil
		}
	}
}
