package activities

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// limitSources are the sources of what the limits of RolloutPolicies depend on, apart from pods. All
// activities of a process share them.
type limitSources struct {
	once  sync.Once
	nodes *kube.NodeLabels
}

func (a *Activities) nodeLabels() *kube.NodeLabels {
	a.limits.once.Do(func() { a.limits.nodes = kube.NewNodeLabels(a.Live, a.Clock) })
	return a.limits.nodes
}

// planPods plans a rollout with all limits of its stage.
func (a *Activities) planPods(ctx context.Context, set *v1alpha1.SidecarSet, population []rollout.Pod, rejected map[protocol.PodReference]bool, current *protocol.Stage) (rollout.Plan, error) {
	cluster, err := a.limitsOf(ctx, population, current)
	if err != nil {
		return rollout.Plan{}, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return rollout.NextInCluster(set, population, rejected, current, cluster)
}

// limitsOf reads what the limits of a stage depend on. It reads nothing for a stage without limits.
func (a *Activities) limitsOf(ctx context.Context, population []rollout.Pod, current *protocol.Stage) (cluster rollout.Cluster, err error) {
	if !stage.LimitsUnavailable(current) {
		return cluster, nil
	}
	if domains := current.Step.Domains; domains != nil {
		cluster.Domain, err = a.nodeLabels().Values(ctx, domains.TopologyKey, nodesOf(population))
	}
	return cluster, err
}

func nodesOf(population []rollout.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range population {
			if !yield(population[i].Spec.NodeName) {
				return
			}
		}
	}
}
