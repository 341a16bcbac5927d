package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// NewestRules is the newest version of the rules of this package (SPEC 12.2, 12.4). An open run keeps its
// version, so that a replay of its history makes the same decisions. Older versions have these differences:
//
//   - Version 0: An abort rolls back only clusters with a permit of the fleet. A stage does not wait for
//     rollbacks of earlier content, and does not repeat its bake time. A run that continues as new makes
//     running clusters pending.
//   - Versions 0 and 1: The result of a rollout ends a rollback that is due but has not begun. An abort
//     restarts rollbacks in progress. The rollout in a completed cluster whose SidecarSet upgrades no pods
//     begins again after each report.
//   - Versions 0 to 2: The rollout in a failed cluster begins again only after a retry of the fleet.
//   - Versions 0 to 3: A run that continues as new begins the rollout in all clusters that were running,
//     although a retry in the first workflow task makes these clusters pending.
//   - Versions 0 to 4: Content that needs a permit and has no verdict supersedes the current content, even if a
//     cluster has reported this content before.
const NewestRules = 5

// Step is the next step of a rollout across many clusters.
type Step struct {
	// Start and RollBack contain the uids of the clusters whose activities start now.
	Start, RollBack []string
	// Until is the time of the next step, if no activity ends before this time. Until is zero if the next step
	// waits only for a cluster, a measurement or a person.
	Until time.Time
	// Measure is the next measurement of a gate, or nil. If a later Step does not contain the same measurement,
	// the workflow cancels the measurement.
	Measure *protocol.FleetGateInput
	// Refresh is set when a stage ends. The workflow then reads the members again before the next step.
	Refresh bool
}

// Next returns the next step, and records the step in s. The decisions depend on verdicts about completed runs
// of the content, and not on the health of clusters (SPEC §12.2).
func Next(s *protocol.FleetState, now time.Time) Step {
	if s.Hash == "" {
		return Step{}
	}
	due := rollBack(s, now)
	step := advance(s, now)
	step.RollBack = due
	return step
}

// NextRollbacks returns a step with the rollbacks that are due. The workflow calls NextRollbacks while the
// activity FleetPlan runs, because rollbacks do not wait for the plan.
func NextRollbacks(s *protocol.FleetState, now time.Time) Step {
	return Step{RollBack: rollBack(s, now)}
}

func advance(s *protocol.FleetState, now time.Time) Step {
	switch s.Phase {
	case protocol.FleetPaused, protocol.FleetRollingBack, protocol.FleetFailed:
		return Step{}
	}
	if s.Stage >= len(s.Spec.Stages) {
		return through(s, now)
	}
	if s.Began == nil {
		s.Began = &now
	}
	return roll(s, now)
}

// roll begins the rollout in pending clusters of the current stage and of earlier stages, up to
// maxConcurrentClusters. Clusters without the content do not count against maxConcurrentClusters. The stage
// waits for clusters without the content until these clusters are skipped.
func roll(s *protocol.FleetState, now time.Time) Step {
	stage := &s.Spec.Stages[s.Stage]
	end := s.Began.Add(UnreachableAfter(&s.Spec))
	if !now.Before(end) {
		skipAbsent(s, now)
	}
	clusters := count(s, now.Before(end))
	if limit, ok := maxSkipped(s, clusters.own); ok && clusters.skipped > limit {
		s.Message = fmt.Sprintf("stage %s waits: %s skipped, and unreachable.max is %s", stage.Name, rollout.Count(clusters.skipped, "cluster"), s.Spec.Unreachable.Max.String())
		return Step{}
	}
	if s.Rules > 0 && s.Reached != nil && clusters.completed == 0 && clusters.own+clusters.later > 0 {
		s.Reached, s.Gates, s.Approval = nil, nil, nil // the rollout in the only completed cluster has begun again
	}
	start := clusters.pending[:min(len(clusters.pending), max(limitOf(stage.MaxConcurrentClusters, clusters.own)-clusters.running, 0))]
	begun(s, start, now)
	step := Step{Start: start}
	if clusters.absent+clusters.undoing > 0 {
		step.Until = end
	}
	switch {
	case clusters.running+len(start) > 0:
		s.Message = fmt.Sprintf("stage %s: %d of %s completed", stage.Name, clusters.completed, rollout.Count(clusters.own, "cluster"))
		return step
	case clusters.undoing > 0:
		s.Message = fmt.Sprintf("stage %s waits until earlier content is rolled back in %s", stage.Name, rollout.Count(clusters.undoing, "cluster"))
		return step
	case clusters.absent > 0:
		s.Message = fmt.Sprintf("stage %s waits for %s without the content", stage.Name, rollout.Count(clusters.absent, "cluster"))
		return step
	case clusters.completed == 0 && clusters.own+clusters.later > 0:
		s.Message = "stage " + stage.Name + " waits: no cluster of the stage has completed"
		return step
	}
	return bake(s, now)
}

// skipAbsent skips the pending clusters of the current stage and of earlier stages that do not have the
// content. A skipped cluster becomes pending again once the cluster reports the content.
func skipAbsent(s *protocol.FleetState, now time.Time) {
	for _, uid := range Keys(s.Clusters) {
		if cluster := s.Clusters[uid]; absent(s, cluster) && cluster.Stage <= s.Stage {
			cluster.State, cluster.Since = protocol.ClusterSkipped, now
			cluster.Reason = fmt.Sprintf("the cluster did not have the content within %s", UnreachableAfter(&s.Spec))
		}
	}
}

// absent reports whether a cluster with a known stage is pending and does not have the content.
func absent(s *protocol.FleetState, cluster *protocol.FleetCluster) bool {
	return cluster.State == protocol.ClusterPending && cluster.Stage != protocol.UnknownStage && cluster.Hash != s.Hash
}

// counts contains the numbers of clusters for the current stage. running, pending and absent include clusters
// of earlier stages. later counts the clusters of later stages and the clusters that match no stage. skipped
// does not include clusters that never had the SidecarSet. undoing counts clusters that roll back earlier
// content. The stage waits for these clusters as long as for absent clusters.
type counts struct {
	running, absent, undoing, completed, skipped, later, own int
	pending                                                  []string
}

// count counts the clusters. waits is set while the stage waits for absent and undoing clusters.
func count(s *protocol.FleetState, waits bool) (c counts) {
	for _, uid := range sorted(s) {
		cluster := s.Clusters[uid]
		if cluster.Stage > s.Stage {
			c.later++
			continue
		}
		if cluster.Stage == s.Stage {
			c.own++
			c.addOwn(s, cluster, waits)
		}
		switch {
		case cluster.State == protocol.ClusterRunning:
			c.running++
		case absent(s, cluster):
			c.absent++
		case cluster.State == protocol.ClusterPending && cluster.Stage != protocol.UnknownStage:
			c.pending = append(c.pending, uid)
		}
	}
	return c
}

// addOwn counts a cluster of the current stage if the cluster rolls back earlier content, is skipped or is
// completed. waits has the same meaning as in count.
func (c *counts) addOwn(s *protocol.FleetState, cluster *protocol.FleetCluster, waits bool) {
	switch {
	case s.Rules > 0 && cluster.Undo != nil && waits:
		c.undoing++
	case s.Rules > 0 && cluster.Undo != nil, cluster.State == protocol.ClusterSkipped && cluster.Hash != "":
		c.skipped++
	case cluster.State == protocol.ClusterCompleted:
		c.completed++
	}
}

// bake ends the current stage once the bake time has ended, the gates have succeeded, and a required approval
// is given.
func bake(s *protocol.FleetState, now time.Time) Step {
	stage := &s.Spec.Stages[s.Stage]
	if s.Reached == nil {
		s.Reached = &now
	}
	if stage.Bake != nil {
		if end := s.Reached.Add(stage.Bake.Duration); now.Before(end) {
			s.Message = "stage " + stage.Name + " bakes until " + end.UTC().Format(time.RFC3339)
			return Step{Until: end}
		}
	}
	if open := openGate(s); open != nil {
		s.Message = protocol.GateOf(s.Gates, open.Name).Awaited("stage " + stage.Name)
		return Step{Measure: measurementOf(s, open, now)}
	}
	if stage.Approval != nil && s.Approval == nil {
		s.Message = "stage " + stage.Name + " waits for approval"
		return Step{}
	}
	note(s, protocol.FleetEvent{Time: now, Hash: s.Hash, What: "stage ended", Stage: stage.Name})
	s.Stage, s.Began, s.Reached, s.Gates, s.Approval, s.Message = s.Stage+1, nil, nil, nil, nil, ""
	return Step{Refresh: true, Until: now}
}

// through begins the rollout in all pending clusters with the content, such as clusters that no stage
// selects, clusters that were skipped, and clusters that join after the last stage.
func through(s *protocol.FleetState, now time.Time) Step {
	if s.Phase != protocol.FleetThrough {
		s.Phase = protocol.FleetThrough
		record(s, protocol.FleetThrough)
		note(s, protocol.FleetEvent{Time: now, Hash: s.Hash, What: "ended"})
	}
	s.Message = "all stages ended"
	var start []string
	for _, uid := range sorted(s) {
		if cluster := s.Clusters[uid]; cluster.State == protocol.ClusterPending && cluster.Stage != protocol.UnknownStage && cluster.Hash == s.Hash {
			start = append(start, uid)
		}
	}
	begun(s, start, now)
	return Step{Start: start}
}

// rollBack begins the rollbacks that are due, and returns the uids of the clusters. Once all rollbacks of
// the current content have ended, the phase is FleetFailed.
func rollBack(s *protocol.FleetState, now time.Time) (due []string) {
	running := 0
	for _, uid := range sorted(s) {
		switch cluster := s.Clusters[uid]; cluster.State {
		case protocol.ClusterRollbackDue:
			cluster.State, cluster.Since = protocol.ClusterRollingBack, now
			due = append(due, uid)
		case protocol.ClusterRollingBack:
		default:
			continue
		}
		if s.Clusters[uid].Undo == nil {
			running++
		}
	}
	if s.Phase == protocol.FleetRollingBack && running == 0 {
		s.Phase = protocol.FleetFailed
	}
	return due
}

func begun(s *protocol.FleetState, uids []string, now time.Time) {
	for _, uid := range uids {
		s.Clusters[uid].State, s.Clusters[uid].Since, s.Clusters[uid].Begun = protocol.ClusterRunning, now, true
	}
}

// sorted returns the uids of the clusters in the order of their names.
func sorted(s *protocol.FleetState) []string {
	uids := Keys(s.Clusters)
	slices.SortStableFunc(uids, func(a, b string) int { return strings.Compare(s.Clusters[a].Name, s.Clusters[b].Name) })
	return uids
}

// limitOf returns the maximum number of clusters that roll out at the same time in a stage with the given
// number of clusters. The maximum is at least 1, even in a stage without clusters, because clusters of earlier
// stages also count.
func limitOf(limit *intstr.IntOrString, clusters int) int {
	if limit == nil {
		return max(clusters, maxStages)
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, clusters, true)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// maxSkipped returns the maximum number of skipped clusters in a stage. own is the number of clusters of the
// stage. ok is false if there is no limit.
func maxSkipped(s *protocol.FleetState, own int) (limit int, ok bool) {
	if s.Spec.Unreachable.Max == nil {
		return 0, false
	}
	limit, err := intstr.GetScaledValueFromIntOrPercent(s.Spec.Unreachable.Max, own, false)
	return limit, err == nil
}

// InputOf returns the input of the activity of a cluster.
func InputOf(s *protocol.FleetState, uid string) protocol.FleetRolloutInput {
	input := protocol.FleetRolloutInput{
		Set: s.Set, Permit: protocol.Permit{Hash: s.Hash, Attempt: s.Attempt}, Within: UnreachableAfter(&s.Spec), Reason: s.Message,
	}
	cluster := s.Clusters[uid]
	if cluster.Undo != nil {
		input.Permit.Hash, input.Reason = cluster.Undo.Hash, cluster.Undo.Reason
		return input
	}
	if cluster.Stage >= 0 && cluster.Stage < len(s.Spec.Stages) {
		input.Permit.Stage = s.Spec.Stages[cluster.Stage].Name
	}
	return input
}
