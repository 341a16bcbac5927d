package activities

import (
	"context"
	"fmt"
	"iter"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

func (a *Activities) listBudgets(ctx context.Context) ([]policyv1.PodDisruptionBudget, error) {
	var all policyv1.PodDisruptionBudgetList
	if err := a.list(ctx, &all); err != nil {
		return nil, fmt.Errorf("list PodDisruptionBudgets: %w (apply config/rbac if the permission is missing)", err)
	}
	return all.Items, nil
}

// budgets returns the PodDisruptionBudgets in the namespaces of population, with counts of the healthy cached
// pods.
func (a *Activities) budgets(ctx context.Context, population []rollout.Pod) (*rollout.Budgets, error) {
	all, err := a.lists().budgets.get(ctx)
	if err != nil {
		return nil, err
	}
	pods := map[string][]*corev1.Pod{}
	for i := range population {
		namespace := population[i].Namespace
		if _, known := pods[namespace]; known {
			continue
		}
		if pods[namespace], err = a.Index.In(namespace); err != nil {
			return nil, err
		}
	}
	return rollout.NewBudgets(all, pods), nil
}

// planPods makes a plan within all limits of the stage current. If the rollout has failed, planPods also returns
// the failure. If the data of a limit cannot be read, planPods returns an error, because no pod may be upgraded
// without the limit. A failure takes precedence over this error, because a failure does not depend on the limits.
func (a *Activities) planPods(ctx context.Context, set *v1alpha1.SidecarSet, population []rollout.Pod, rejected map[protocol.PodReference]bool, current *protocol.Stage) (plan rollout.Plan, failure *protocol.Failure, err error) {
	var cluster rollout.Cluster
	var unread error
	if current == nil || current.Aborted == nil {
		cluster, unread = a.limitsOf(ctx, population, current)
	}
	if plan, err = rollout.NextInCluster(set, population, rejected, current, cluster); err != nil {
		return plan, nil, err
	}
	failure, err = rollout.Failure(set, population, &plan, current)
	if err == nil && failure == nil && unread != nil {
		err = fmt.Errorf("SidecarSet %s: %w", set.Name, unread)
	}
	return plan, failure, err
}

// limitsOf reads the data on which the limits of a stage depend. For a stage without such limits, limitsOf
// reads nothing and returns the zero value.
func (a *Activities) limitsOf(ctx context.Context, population []rollout.Pod, current *protocol.Stage) (cluster rollout.Cluster, err error) {
	if !stage.LimitsUnavailable(current) {
		return cluster, nil
	}
	if domains := current.Step.Domains; domains != nil {
		if cluster.Domain, err = a.lists().nodes.Values(ctx, domains.TopologyKey, nodesOf(population)); err != nil {
			return cluster, err
		}
	}
	if current.Step.RespectBudgets {
		cluster.Budgets, err = a.budgets(ctx, population)
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
