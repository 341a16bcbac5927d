package rollout

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/stage"
)

// Cluster contains the data, other than the pods of the SidecarSet, on which the limits of a RolloutPolicy
// depend. A limit whose data is missing does not apply. A caller without access to the cluster uses the zero
// value.
type Cluster struct {
	// Domain returns the domain of a node, or an empty string if the node has no domain.
	Domain func(node string) string
	// Budgets are the PodDisruptionBudgets of the namespaces of the pods.
	Budgets *Budgets
}

// limit is a limit of the pods that upgrades make unavailable at once, in addition to maxUnavailable.
type limit interface {
	// needs reports whether the upgrade of a pod needs a slot.
	needs(pod *Pod) bool
	// full reports whether the limit has no slot for a pod.
	full(pod *Pod) bool
	// take counts a pod that is unavailable, or is about to become unavailable.
	take(pod *Pod)
	// wants describes the slot that a pod waits for.
	wants(pod *Pod) string
}

// limits are the limits of a RolloutPolicy.
type limits []limit

// full returns the first limit that has no slot for the upgrade of a pod, or nil.
func (all limits) full(pod *Pod) limit {
	for _, one := range all {
		if one.needs(pod) && one.full(pod) {
			return one
		}
	}
	return nil
}

// take uses the slots that the upgrade of a pod needs.
func (all limits) take(pod *Pod) {
	for _, one := range all {
		if one.needs(pod) {
			one.take(pod)
		}
	}
}

// scope contains the pods and the cluster to which the limits of a step apply. A nil scope has no limits.
type scope struct {
	step    *protocol.Step
	cluster Cluster
	pods    []Pod
}

func newScope(current *protocol.Stage, pods []Pod, cluster Cluster) *scope {
	if !stage.LimitsUnavailable(current) {
		return nil
	}
	return &scope{step: current.Step, pods: pods, cluster: cluster}
}

// limits returns the limits of the step. The pods that upgrades made unavailable use slots of these limits.
// The value of tried is true for a pod that a batch has written, or is writing. Such a pod counts as
// unavailable until the population shows the pod as updated.
func (s *scope) limits(tried map[protocol.PodReference]bool) limits {
	if s == nil {
		return nil
	}
	var all limits
	if s.step.MaxPerOwner > 0 {
		all = append(all, newOwners(s.step.MaxPerOwner))
	}
	if s.step.Domains != nil && s.cluster.Domain != nil {
		all = append(all, newDomains(s.step.Domains.MaxUnavailable, s.cluster.Domain))
	}
	if s.step.RespectBudgets && s.cluster.Budgets != nil {
		all = append(all, newDisruptions(s.cluster.Budgets))
	}
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.UnavailableByUpgrade() || !pod.Updated && !pod.RestartsNothing && tried[pod.Reference()] {
			for _, one := range all {
				one.take(pod)
			}
		}
	}
	return all
}
