package fleet

import (
	"cmp"
	"slices"

	"github.com/outrigger/outrigger/api/protocol"
)

// WorstFirst returns the clusters of a rollout. Failed clusters are first, and completed clusters are last.
func WorstFirst(s *protocol.FleetState) []*protocol.FleetCluster {
	order := []protocol.FleetClusterState{
		protocol.ClusterFailed, protocol.ClusterRollbackDue, protocol.ClusterRollingBack, protocol.ClusterRolledBack, protocol.ClusterSkipped,
		protocol.ClusterSuperseded, protocol.ClusterRunning, protocol.ClusterPending, protocol.ClusterCompleted,
	}
	var all []*protocol.FleetCluster
	for _, uid := range sorted(s) {
		all = append(all, s.Clusters[uid])
	}
	slices.SortStableFunc(all, func(a, b *protocol.FleetCluster) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), cmp.Compare(a.Stage, b.Stage))
	})
	return all
}

// StageName returns the name of the stage of a cluster, or "-" if the cluster has no stage.
func StageName(s *protocol.FleetState, cluster *protocol.FleetCluster) string {
	if cluster.Stage < 0 || cluster.Stage >= len(s.Spec.Stages) {
		return "-"
	}
	return s.Spec.Stages[cluster.Stage].Name
}
