package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// maxVerdicts limits the verdicts that a state keeps.
const maxVerdicts = 50

// maxEvents limits the events that a state keeps.
const maxEvents = 100

// Effect is the effect of a report of content.
type Effect int

// These are the effects of a report. Nothing means that the cluster has other content, and that the current
// content does not change. Joined means that the cluster has the current content. If the cluster is new, the
// workflow then reads the plan again. Superseded means that the content of the report is now the current
// content.
const (
	Nothing Effect = iota
	Joined
	Superseded
)

// Report records the content of a cluster, and returns the effect (SPEC §12.3). Content that failed does not
// supersede the current content. Other content supersedes the current content in two cases: the content needs a
// permit and no cluster has reported the content before, or the cluster had the current content until this
// report. If the cluster has the current content and beginsAgain returns true, the cluster becomes pending.
func Report(s *protocol.FleetState, content protocol.FleetContent, now time.Time) Effect {
	cluster, known := s.Clusters[content.Member]
	if !known {
		cluster = &protocol.FleetCluster{Stage: protocol.UnknownStage, State: protocol.ClusterPending}
		if s.Clusters == nil {
			s.Clusters = map[string]*protocol.FleetCluster{}
		}
		s.Clusters[content.Member] = cluster
	}
	former, again := cluster.Hash, beginsAgain(s, cluster, content)
	cluster.Hash, cluster.Settled = content.Hash, content.Settled
	recordOwn(s, cluster, content, now)
	if content.Hash == s.Hash {
		if again {
			cluster.State, cluster.Reason = protocol.ClusterPending, ""
		}
		return Joined
	}
	verdict := VerdictOf(s, content.Hash)
	known = verdict != "" || s.Hash != "" && (content.Settled || s.Rules > 4 && reportedBefore(s, content, former))
	if verdict == protocol.FleetFailed || known && former != s.Hash {
		return Nothing
	}
	supersede(s, content.Hash)
	note(s, protocol.FleetEvent{Time: now, Hash: s.Hash, What: "began", Cluster: cmp.Or(cluster.Name, content.Member)})
	return Superseded
}

// reportedBefore reports whether content is the content of another cluster, or the former content of the same
// cluster. VerdictOf alone is not sufficient, because content that only clusters behind the current content have
// reported has no verdict.
func reportedBefore(s *protocol.FleetState, content protocol.FleetContent, former string) bool {
	return former == content.Hash || slices.ContainsFunc(Keys(s.Clusters), func(uid string) bool {
		return uid != content.Member && s.Clusters[uid].Hash == content.Hash
	})
}

// beginsAgain reports whether the rollout in a cluster with the current content begins again. The rollout
// begins again in skipped and superseded clusters. In a completed cluster, the rollout begins again if the
// cluster needs a permit again, for example because etcd of the cluster was restored. In a failed cluster, the
// rollout begins again once a user of the cluster has completed the rollout, or once the cluster has lost its
// permit. After the fleet has paused or stopped the content, the rollout in a failed cluster does not begin
// again.
func beginsAgain(s *protocol.FleetState, cluster *protocol.FleetCluster, content protocol.FleetContent) bool {
	switch cluster.State {
	case protocol.ClusterSkipped, protocol.ClusterSuperseded:
		return true
	case protocol.ClusterCompleted:
		return !content.Settled && (s.Rules < 2 || !content.NotUpdate)
	case protocol.ClusterFailed:
		rolls := s.Phase == protocol.FleetRolling || s.Phase == protocol.FleetThrough
		return s.Rules > 2 && rolls && (content.Good || lostPermit(cluster, content))
	}
	return false
}

// lostPermit reports whether a cluster needed no permit at its last report, and needs a permit now.
func lostPermit(cluster *protocol.FleetCluster, content protocol.FleetContent) bool {
	return cluster.Settled && cluster.Hash == content.Hash && !content.Settled
}

// recordOwn records the permit that a user has given in the cluster, if any.
func recordOwn(s *protocol.FleetState, cluster *protocol.FleetCluster, content protocol.FleetContent, now time.Time) {
	if own := content.Own; own != nil && (cluster.Own == nil || *cluster.Own != *own) {
		note(s, protocol.FleetEvent{Time: now, Hash: content.Hash, What: "permitted in its cluster", Cluster: cmp.Or(cluster.Name, content.Member), By: own.By, Reason: own.Reason})
	}
	cluster.Own = content.Own
}

// Knows reports whether a report of content would leave the state of the cluster unchanged. The member omits
// such a report, because each report adds events to the history of the workflow.
func Knows(cluster *protocol.FleetCluster, content protocol.FleetContent) bool {
	if cluster == nil || cluster.Hash != content.Hash || cluster.Stage == protocol.UnknownStage {
		return false
	}
	if (cluster.Own == nil) != (content.Own == nil) {
		return false
	}
	if content.Settled && !cluster.Settled && cluster.State != protocol.ClusterRolledBack {
		return false // an abort also rolls back the clusters that need no permit
	}
	switch cluster.State {
	case protocol.ClusterSkipped, protocol.ClusterSuperseded:
		return false
	case protocol.ClusterCompleted:
		return content.Settled || content.NotUpdate
	case protocol.ClusterFailed:
		return !content.Good && !lostPermit(cluster, content)
	}
	return true
}

// supersede begins the rollout of other content. Rollbacks of the former content continue, because a
// cluster may keep the former content for a long time.
func supersede(s *protocol.FleetState, hash string) {
	for _, uid := range Keys(s.Clusters) {
		switch cluster := s.Clusters[uid]; cluster.State {
		case protocol.ClusterRollbackDue, protocol.ClusterRollingBack:
			if cluster.Undo == nil {
				cluster.Undo = &protocol.FleetUndo{Hash: s.Hash, Reason: s.Message}
			}
		}
	}
	if s.Hash != "" && VerdictOf(s, s.Hash) == "" {
		record(s, protocol.FleetSuperseded)
	}
	forget(s, hash)
	s.Hash, s.Attempt, s.Highest, s.Planned, s.Policy, s.Spec = hash, 0, 0, false, "", outriggerv1.FleetPolicySpec{}
	begin(s)
	for _, uid := range Keys(s.Clusters) {
		cluster := s.Clusters[uid]
		cluster.State, cluster.Reason, cluster.Begun = protocol.ClusterPending, "", false
		if cluster.Undo != nil {
			cluster.State = protocol.ClusterRollbackDue
		}
	}
}

// begin begins an attempt with the first stage.
func begin(s *protocol.FleetState) {
	s.Attempt = max(s.Attempt, s.Highest) + 1
	s.Stage, s.Began, s.Reached, s.Gates, s.Approval, s.Phase, s.Message = 0, nil, nil, nil, nil, protocol.FleetRolling, ""
}

// note adds an event, and keeps the newest maxEvents events.
func note(s *protocol.FleetState, event protocol.FleetEvent) {
	s.Events = append(slices.Clone(s.Events), event)
	s.Events = s.Events[max(len(s.Events)-maxEvents, 0):]
}

// VerdictOf returns the verdict about content, or "".
func VerdictOf(s *protocol.FleetState, hash string) protocol.FleetPhase {
	for _, verdict := range s.Verdicts {
		if verdict.Hash == hash {
			return verdict.Phase
		}
	}
	return ""
}

// record records the verdict about the current content.
func record(s *protocol.FleetState, phase protocol.FleetPhase) {
	forget(s, s.Hash)
	s.Verdicts = append(s.Verdicts, protocol.FleetVerdict{Hash: s.Hash, Phase: phase})
	s.Verdicts = s.Verdicts[max(len(s.Verdicts)-maxVerdicts, 0):]
}

func forget(s *protocol.FleetState, hash string) {
	s.Verdicts = slices.DeleteFunc(slices.Clone(s.Verdicts), func(v protocol.FleetVerdict) bool { return v.Hash == hash })
}

// Adopt copies plan into s. The rollout of content keeps the policy with which the rollout began. The members
// change with each plan, because members join and leave at any time (SPEC 12.2.3). If outdated is set, clusters
// without a known stage are kept, because the plan may be older than the reports of these clusters.
func Adopt(s *protocol.FleetState, plan *protocol.FleetPlan, outdated bool) {
	if !s.Planned {
		s.Planned, s.Policy, s.Spec = true, plan.Policy, plan.Spec
	}
	if s.Clusters == nil {
		s.Clusters = map[string]*protocol.FleetCluster{}
	}
	members := map[string]bool{}
	for i := range plan.Members {
		member := &plan.Members[i]
		members[member.UID] = true
		cluster, known := s.Clusters[member.UID]
		if !known {
			cluster = &protocol.FleetCluster{State: protocol.ClusterPending}
			s.Clusters[member.UID] = cluster
		}
		cluster.Name, cluster.Stage = member.Name, stageOf(&s.Spec, member)
	}
	for _, uid := range Keys(s.Clusters) {
		if joining := s.Clusters[uid].Stage == protocol.UnknownStage; !members[uid] && (!outdated || !joining) {
			delete(s.Clusters, uid)
		}
	}
}

// Resume prepares the state for the next run of the workflow, in which no activity has started yet. Resume
// returns the uids of the clusters whose rollouts are in progress. The workflow starts the activities of these
// clusters again, so that the rollout does not begin in other clusters instead. A second start is safe, because
// the activities are idempotent.
func Resume(s *protocol.FleetState) (rollOut []string) {
	for _, uid := range Keys(s.Clusters) {
		cluster := s.Clusters[uid]
		switch {
		case cluster.State == protocol.ClusterRollingBack:
			cluster.State = protocol.ClusterRollbackDue
		case cluster.State == protocol.ClusterRunning && s.Rules == 0:
			cluster.State = protocol.ClusterPending
		case cluster.State == protocol.ClusterRunning:
			rollOut = append(rollOut, uid)
		}
	}
	return rollOut
}

// Continues reports whether the rollout of a cluster that Resume returned continues. The updates of the first
// workflow task run before the activities start, and may change the state of the cluster. For example, a retry
// makes the cluster pending.
func Continues(s *protocol.FleetState, uid string) bool {
	cluster := s.Clusters[uid]
	return s.Rules < 4 || cluster != nil && cluster.State == protocol.ClusterRunning
}

// Finish records the result of an activity of a cluster. While a stage is in progress, the rollout stops once
// more than failure.maxFailedClusters clusters have failed (SPEC §12.4).
func Finish(s *protocol.FleetState, uid string, result protocol.FleetResult, now time.Time) {
	cluster := s.Clusters[uid]
	if cluster == nil {
		return // the cluster has left the fleet
	}
	s.Highest = max(s.Highest, result.Attempt)
	if s.Rules > 1 && cluster.State == protocol.ClusterRollbackDue {
		return // another result of the same workflow task has stopped the rollout
	}
	cluster.State, cluster.Reason, cluster.Since = result.State, result.Reason, now
	if cluster.Undo != nil {
		cluster.State, cluster.Undo, cluster.Reason = protocol.ClusterPending, nil, ""
		return
	}
	if result.State == protocol.ClusterRolledBack || result.State == protocol.ClusterSuperseded {
		cluster.Begun, cluster.Own, cluster.Settled = false, nil, false
	}
	if result.State != protocol.ClusterFailed || s.Phase != protocol.FleetRolling {
		return
	}
	failed, limit := countOf(s, protocol.ClusterFailed), s.Spec.Failure.MaxFailedClusters
	if failed <= limit {
		return
	}
	reason := fmt.Sprintf("cluster %s failed: %s", cmp.Or(cluster.Name, uid), result.Reason)
	if limit > 0 {
		reason += fmt.Sprintf("; %d clusters failed, and failure.maxFailedClusters is %d", failed, limit)
	}
	stop(s, reason, s.Spec.Failure.Action, began)
	note(s, protocol.FleetEvent{Time: now, Hash: s.Hash, What: "failed", Cluster: cmp.Or(cluster.Name, uid), Reason: result.Reason})
}

func countOf(s *protocol.FleetState, state protocol.FleetClusterState) (n int) {
	for _, uid := range Keys(s.Clusters) {
		if s.Clusters[uid].State == state {
			n++
		}
	}
	return n
}

// stop records that the content failed, and stops the rollout, so that the rollout begins in no further
// cluster. has reports whether a cluster may have the content. With action Pause, the default, the clusters do
// not change. With RollbackAll, all clusters with the content are rolled back, even if the clusters do not
// respond now. With RollbackStage, the clusters with the content are rolled back if they belong to the current
// stage, are running or have failed (SPEC §12.4).
func stop(s *protocol.FleetState, reason string, action outriggerv1.FleetAction, has func(*protocol.FleetState, *protocol.FleetCluster) bool) {
	s.Message = reason
	record(s, protocol.FleetFailed)
	if action == outriggerv1.FleetPause || action == "" {
		s.Phase = protocol.FleetPaused
		return
	}
	s.Phase = protocol.FleetRollingBack
	for _, uid := range Keys(s.Clusters) {
		cluster := s.Clusters[uid]
		inStage := action == outriggerv1.FleetRollbackAll || cluster.Stage == s.Stage ||
			cluster.State == protocol.ClusterRunning || cluster.State == protocol.ClusterFailed
		if has(s, cluster) && inStage && (s.Rules < 2 || !rollsBack(cluster)) {
			cluster.State = protocol.ClusterRollbackDue
		}
	}
}

// rollsBack reports whether the rollback of a cluster is due or in progress.
func rollsBack(cluster *protocol.FleetCluster) bool {
	return cluster.State == protocol.ClusterRollbackDue || cluster.State == protocol.ClusterRollingBack
}

// began reports whether a cluster may have a permit of the fleet or of a user for the content.
func began(s *protocol.FleetState, cluster *protocol.FleetCluster) bool {
	return cluster.Begun || s.Rules > 0 && cluster.Own != nil && cluster.Hash == s.Hash
}

// hasContent reports whether a cluster may have rolled the content out, either with a permit or before the
// cluster joined the fleet.
func hasContent(s *protocol.FleetState, cluster *protocol.FleetCluster) bool {
	return began(s, cluster) || s.Rules > 0 && cluster.Settled && cluster.Hash == s.Hash
}

// CheckText rejects names and reasons that are too long.
func CheckText(by protocol.Approval) error {
	if len(by.By) > protocol.MaxPauseText || len(by.Reason) > protocol.MaxPauseText {
		return fmt.Errorf("the name and the reason may have %d bytes each", protocol.MaxPauseText)
	}
	return nil
}

// checkContent rejects a request for other content than the current content, and a request with texts that
// are too long.
func checkContent(s *protocol.FleetState, request protocol.FleetStepRequest) error {
	if request.Hash != "" && request.Hash != s.Hash {
		return fmt.Errorf("the request is for content %s, and the current content of %s is %s", request.Hash, s.Set, s.Hash)
	}
	return CheckText(request.Approval)
}

// CheckApproval rejects an approval if no stage is in progress, or if the current stage needs no approval.
// CheckApproval also rejects an approval for a stage or content that is not current.
func CheckApproval(s *protocol.FleetState, request protocol.FleetStepRequest) error {
	if s.Phase != protocol.FleetRolling || s.Stage >= len(s.Spec.Stages) {
		return fmt.Errorf("no stage of %s is in progress (phase %s)", s.Set, s.Phase)
	}
	if current := &s.Spec.Stages[s.Stage]; request.Stage != "" && request.Stage != current.Name {
		return fmt.Errorf("the request is for stage %s, and the current stage is %s", request.Stage, current.Name)
	} else if current.Approval == nil {
		return fmt.Errorf("stage %s needs no approval", current.Name)
	}
	return checkContent(s, request)
}

// Approve approves the current stage, even before the bake time has ended.
func Approve(s *protocol.FleetState, by protocol.Approval, now time.Time) {
	s.Approval = &by
	note(s, protocol.FleetEvent{Time: now, Hash: s.Hash, What: "approved", Stage: s.Spec.Stages[s.Stage].Name, By: by.By, Reason: by.Reason})
}

// CheckAbort rejects an abort if there is no rollout. CheckAbort also rejects an abort of a stopped rollout if
// no cluster with the content remains to be rolled back. A failure may roll back only some clusters, so an
// abort can roll back the remaining clusters.
func CheckAbort(s *protocol.FleetState, request protocol.FleetStepRequest) error {
	stopped := s.Phase == protocol.FleetRollingBack || s.Phase == protocol.FleetFailed
	left := func(uid string) bool {
		cluster := s.Clusters[uid]
		return hasContent(s, cluster) && !rollsBack(cluster) && cluster.State != protocol.ClusterRolledBack
	}
	if s.Hash == "" || stopped && !slices.ContainsFunc(Keys(s.Clusters), left) {
		return fmt.Errorf("no rollout of %s is in progress (phase %s)", s.Set, s.Phase)
	}
	return checkContent(s, request)
}

// Abort rolls back all clusters with the content, including clusters that had the content before this rollout.
// A failed cluster or gate does not roll back these clusters, because these clusters have rolled the content
// out without a failure.
func Abort(s *protocol.FleetState, by protocol.Approval, now time.Time) {
	note(s, protocol.FleetEvent{Time: now, Hash: s.Hash, What: "aborted", By: by.By, Reason: by.Reason})
	stop(s, "aborted"+protocol.Pause{By: by.By, Reason: by.Reason}.Details(), outriggerv1.FleetRollbackAll, hasContent)
}

// CheckRetry rejects a retry unless the rollout is paused, rolling back or failed. CheckRetry accepts a
// retry during a rollback, because the rollback of a cluster that does not respond may never end.
func CheckRetry(s *protocol.FleetState, request protocol.FleetStepRequest) error {
	switch s.Phase {
	case protocol.FleetPaused, protocol.FleetRollingBack, protocol.FleetFailed:
	default:
		return fmt.Errorf("the rollout of %s has not failed (phase %s)", s.Set, s.Phase)
	}
	return checkContent(s, request)
}

// Retry restarts the rollout of the same content from the first stage, with the newest policy.
func Retry(s *protocol.FleetState, by protocol.Approval, now time.Time) {
	note(s, protocol.FleetEvent{Time: now, Hash: s.Hash, What: "retried", By: by.By, Reason: by.Reason})
	forget(s, s.Hash)
	begin(s)
	s.Planned = false
	for _, uid := range Keys(s.Clusters) {
		cluster := s.Clusters[uid]
		cluster.State, cluster.Reason = protocol.ClusterPending, ""
		if cluster.Undo != nil {
			cluster.State = protocol.ClusterRollbackDue
		}
	}
}
