package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// rolling returns a rollout of h1 in its second stage, with clusters in several states.
func rolling(action outriggerv1.FleetAction) *protocol.FleetState {
	s := &protocol.FleetState{Set: "envoy", Hash: "h1", Rules: NewestRules, Phase: protocol.FleetRolling, Planned: true, Spec: policy().Spec, Stage: 1, Attempt: 1}
	s.Spec.Failure.Action, s.Spec.Stages[1].MaxConcurrentClusters = action, new(intstr.FromInt32(9))
	s.Clusters = map[string]*protocol.FleetCluster{
		"canary": {Stage: 0, State: protocol.ClusterCompleted, Begun: true},
		"joined": {Stage: 0, State: protocol.ClusterRunning, Begun: true},
		"away":   {Stage: 1, State: protocol.ClusterSkipped, Begun: true},
		"bad":    {Stage: 1, State: protocol.ClusterRunning, Begun: true},
		"next":   {Stage: 1, State: protocol.ClusterPending},
	}
	for uid, cluster := range s.Clusters {
		cluster.Name, cluster.Hash = uid, "h1"
	}
	return s
}

func due(s *protocol.FleetState) (all []string) {
	for _, uid := range sorted(s) {
		if s.Clusters[uid].State == protocol.ClusterRollbackDue {
			all = append(all, uid)
		}
	}
	return all
}

// endRollbacks begins the rollbacks that are due, and ends all rollbacks.
func endRollbacks(s *protocol.FleetState) {
	Next(s, time.Now())
	for _, uid := range sorted(s) {
		if s.Clusters[uid].State == protocol.ClusterRollingBack {
			Finish(s, uid, protocol.FleetResult{State: protocol.ClusterRolledBack}, time.Now())
		}
	}
}

// A skipped cluster may have a permit. A cluster in which an earlier attempt began the rollout may also have a
// permit.
func TestSpec12_4_ARollbackReachesEachClusterThatBegan(t *testing.T) {
	failed := protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}
	s := rolling(outriggerv1.FleetRollbackAll)
	Finish(s, "bad", failed, time.Now())
	assert.Equal(t, []string{"away", "bad", "canary", "joined"}, due(s))

	s = rolling(outriggerv1.FleetRollbackStage)
	Finish(s, "bad", failed, time.Now())
	assert.Equal(t, []string{"away", "bad", "joined"}, due(s), "a cluster that joined rolls out with the current stage")

	s = rolling(outriggerv1.FleetPause)
	Finish(s, "bad", failed, time.Now())
	Retry(s, protocol.Approval{}, time.Now())
	assert.Equal(t, protocol.ClusterPending, s.Clusters["canary"].State)
	Abort(s, protocol.Approval{}, time.Now())
	assert.Equal(t, []string{"away", "bad", "canary", "joined"}, due(s), "an earlier attempt began these clusters")
	endRollbacks(s)
	Next(s, time.Now())
	assert.Equal(t, protocol.FleetFailed, s.Phase)
	Retry(s, protocol.Approval{}, time.Now())
	Abort(s, protocol.Approval{}, time.Now())
	assert.Empty(t, due(s), "no cluster has begun since its rollback")
}

// The workflow handles all results of one workflow task before the next step of the fleet.
func TestSpec12_4_AResultDoesNotEndARollbackThatHasNotBegun(t *testing.T) {
	for _, state := range []protocol.FleetClusterState{protocol.ClusterCompleted, protocol.ClusterFailed, protocol.ClusterSkipped} {
		s := rolling(outriggerv1.FleetRollbackAll)
		Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
		Finish(s, "joined", protocol.FleetResult{State: state}, time.Now())
		assert.Equal(t, []string{"away", "bad", "canary", "joined"}, Next(s, time.Now()).RollBack, state)
	}

	s := rolling(outriggerv1.FleetRollbackAll)
	s.Rules = 1
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
	Finish(s, "joined", protocol.FleetResult{State: protocol.ClusterCompleted}, time.Now())
	assert.Equal(t, []string{"away", "bad", "canary"}, Next(s, time.Now()).RollBack, "an open run keeps its rules")
}

func TestSpec12_4_AnAbortReachesTheClustersThatAFailureSpared(t *testing.T) {
	s := rolling(outriggerv1.FleetRollbackStage)
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
	assert.Equal(t, []string{"away", "bad", "joined"}, Next(s, time.Now()).RollBack)
	require.NoError(t, CheckAbort(s, protocol.FleetStepRequest{}))
	former := *s
	former.Rules, former.Clusters = 1, map[string]*protocol.FleetCluster{}
	for uid, cluster := range s.Clusters {
		former.Clusters[uid] = new(*cluster)
	}
	Abort(&former, protocol.Approval{}, time.Now())
	assert.Equal(t, []string{"away", "bad", "canary", "joined"}, Next(&former, time.Now()).RollBack, "an open run keeps its rules")
	Abort(s, protocol.Approval{}, time.Now())
	assert.Equal(t, []string{"canary"}, Next(s, time.Now()).RollBack, "the other rollbacks continue")
	require.ErrorContains(t, CheckAbort(s, protocol.FleetStepRequest{}), "no rollout of envoy is in progress")
	endRollbacks(s)
	Next(s, time.Now())
	assert.Equal(t, protocol.FleetFailed, s.Phase)
	Report(s, protocol.FleetContent{Member: "canary", Hash: "h1", Settled: true, Own: &protocol.Approval{By: "ann"}}, time.Now())
	require.Error(t, CheckAbort(s, protocol.FleetStepRequest{}))
}

// The Temporal namespace of the fleet has lost its data. The permits in the clusters still contain the numbers
// of their attempts.
func TestSpec12_4_ARetryExceedsEachAttemptThatFailed(t *testing.T) {
	s := rolling(outriggerv1.FleetPause)
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Attempt: 3}, time.Now())
	assert.Equal(t, 1, s.Attempt, "the other clusters roll out with the present attempt")
	Retry(s, protocol.Approval{}, time.Now())
	assert.Equal(t, 4, s.Attempt)
	Abort(s, protocol.Approval{}, time.Now())
	Next(s, time.Now())
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterRolledBack, Attempt: 6}, time.Now())
	Retry(s, protocol.Approval{}, time.Now())
	assert.Equal(t, 7, s.Attempt)
	Report(s, protocol.FleetContent{Member: "canary", Hash: "h2"}, time.Now())
	assert.Equal(t, 1, s.Attempt)
}

// The rollout of a SidecarSet that upgrades no pods ends without a permit. Each report of the cluster therefore
// shows that the cluster needs a permit, and must not make the completed cluster pending.
func TestSpec12_3_AClusterThatUpgradesNoPodsDoesNotBeginAgain(t *testing.T) {
	for notUpdate, state := range map[bool]protocol.FleetClusterState{true: protocol.ClusterCompleted, false: protocol.ClusterPending} {
		s := rolling(outriggerv1.FleetPause)
		content := protocol.FleetContent{Member: "canary", Hash: "h1", NotUpdate: notUpdate}
		assert.Equal(t, notUpdate, Knows(s.Clusters["canary"], content))
		Report(s, content, time.Now())
		assert.Equal(t, state, s.Clusters["canary"].State)
		s.Rules, s.Clusters["canary"].State = 1, protocol.ClusterCompleted
		Report(s, content, time.Now())
		assert.Equal(t, protocol.ClusterPending, s.Clusters["canary"].State, "an open run keeps its rules")
	}
}

// A cluster that never responds does not prevent a retry.
func TestSpec12_4_ARetryNeedsNoEndOfTheRollback(t *testing.T) {
	s := rolling(outriggerv1.FleetRollbackAll)
	Abort(s, protocol.Approval{}, time.Now())
	require.NoError(t, CheckRetry(s, protocol.FleetStepRequest{}))
	Retry(s, protocol.Approval{}, time.Now())
	assert.Equal(t, protocol.FleetRolling, s.Phase)
	assert.Equal(t, 2, s.Attempt)
}

// Content that fixes a failure does not end the rollbacks in clusters that do not have this content yet.
func TestSpec12_4_ARollbackContinuesWithOtherContent(t *testing.T) {
	now := time.Now()
	s := rolling(outriggerv1.FleetRollbackAll)
	Abort(s, protocol.Approval{Reason: "errors"}, time.Now())
	assert.Equal(t, []string{"away", "bad", "canary", "joined"}, Next(s, now).RollBack)
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterRolledBack}, now)
	require.Equal(t, Superseded, Report(s, protocol.FleetContent{Member: "canary", Hash: "h2"}, time.Now()))
	Resume(s)
	s.Planned, s.Spec = true, policy().Spec
	step := Next(s, now)
	assert.Equal(t, []string{"away", "canary", "joined"}, step.RollBack)
	assert.Empty(t, step.Start, "the rollback of the cluster has not ended")
	assert.Equal(t, "h1", InputOf(s, "canary").Permit.Hash)
	assert.Contains(t, InputOf(s, "canary").Reason, "errors")
	Finish(s, "canary", protocol.FleetResult{State: protocol.ClusterSuperseded}, now)
	step = Next(s, now)
	assert.Equal(t, []string{"canary"}, step.Start)
	assert.Equal(t, protocol.Permit{Hash: "h2", Stage: "canary", Attempt: 1}, InputOf(s, "canary").Permit)
	Retry(s, protocol.Approval{}, time.Now())
	assert.Equal(t, protocol.ClusterRollbackDue, s.Clusters["away"].State)
}

// A user can permit content in one cluster. The fleet keeps the user and the reason.
func TestSpec12_6_TheFleetRecordsAPermitOfAUser(t *testing.T) {
	s, own := rolling(outriggerv1.FleetPause), &protocol.Approval{By: "ann", Reason: "hotfix"}
	s.Clusters["next"].Hash = "h0"
	for range 2 {
		Report(s, protocol.FleetContent{Member: "next", Hash: "h9", Settled: true, Own: own}, time.Now())
	}
	assert.Equal(t, "h1", s.Hash)
	assert.Equal(t, own, s.Clusters["next"].Own)
	require.Len(t, s.Events, 1)
	assert.Equal(t, "next ann hotfix", s.Events[0].Cluster+" "+s.Events[0].By+" "+s.Events[0].Reason)
}

// The rollout continues while at most failure.maxFailedClusters clusters have failed.
func TestSpec12_4_SomeClustersMayFail(t *testing.T) {
	s := rolling(outriggerv1.FleetRollbackAll)
	s.Spec.Failure.MaxFailedClusters = 1
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
	assert.Equal(t, protocol.FleetRolling, s.Phase)
	assert.Equal(t, []string{"next"}, Next(s, time.Now()).Start, "other clusters of the stage begin")
	Finish(s, "next", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "worse"}, time.Now())
	assert.Equal(t, protocol.FleetRollingBack, s.Phase)
	assert.Equal(t, "cluster next failed: worse; 2 clusters failed, and failure.maxFailedClusters is 1", s.Message)
}

// If more clusters than unreachable.max are skipped, the cause is probably not a single cluster.
func TestSpec12_2_AStageWithTooManySkippedClustersWaits(t *testing.T) {
	s := rolling(outriggerv1.FleetPause)
	s.Spec.Unreachable.Max = new(intstr.FromString("34%"))
	assert.Equal(t, []string{"next"}, Next(s, time.Now()).Start, "one of three clusters is skipped")
	Finish(s, "next", protocol.FleetResult{State: protocol.ClusterSkipped}, time.Now())
	s.Clusters["bad"].State = protocol.ClusterPending
	assert.Empty(t, Next(s, time.Now()).Start)
	assert.Equal(t, "stage europe waits: 2 clusters skipped, and unreachable.max is 34%", s.Message)
	s.Clusters["next"].Hash = ""
	assert.Equal(t, []string{"bad"}, Next(s, time.Now()).Start, "a cluster without the SidecarSet does not count")
}

// The content may change between the request of the user and the execution of the request.
func TestSpec12_4_ARequestForOtherContentIsRejected(t *testing.T) {
	s := rolling(outriggerv1.FleetPause)
	s.Spec.Stages[1].Approval = &outriggerv1.StepApproval{}
	for hash, accepted := range map[string]bool{"": true, "h1": true, "h0": false} {
		request := protocol.FleetStepRequest{Hash: hash}
		assert.Equal(t, accepted, CheckApproval(s, request) == nil, hash)
		assert.Equal(t, accepted, CheckAbort(s, request) == nil, hash)
		s.Phase = protocol.FleetPaused
		assert.Equal(t, accepted, CheckRetry(s, request) == nil, hash)
		s.Phase = protocol.FleetRolling
	}
}

// A user permitted the content in one cluster. Another cluster had the content when the cluster joined the
// fleet.
func TestSpec12_4_AnAbortReachesClustersWithoutAPermitOfTheFleet(t *testing.T) {
	s := rolling(outriggerv1.FleetPause)
	s.Stage = 0
	Report(s, protocol.FleetContent{Member: "next", Hash: "h1", Own: &protocol.Approval{By: "ann"}}, time.Now())
	Report(s, protocol.FleetContent{Member: "settled", Hash: "h1", Settled: true}, time.Now())
	Report(s, protocol.FleetContent{Member: "waits", Hash: "h1"}, time.Now())
	Report(s, protocol.FleetContent{Member: "other", Hash: "h0", Settled: true}, time.Now())
	Abort(s, protocol.Approval{}, time.Now())
	assert.ElementsMatch(t, []string{"away", "bad", "canary", "joined", "next", "settled"}, due(s))
	endRollbacks(s)
	Retry(s, protocol.Approval{}, time.Now())
	Abort(s, protocol.Approval{}, time.Now())
	assert.Empty(t, due(s), "no cluster has begun since its rollback")
}

// The content fails in a cluster with a permit of the fleet. Cluster settled had the content before this
// rollout.
func TestSpec12_4_AFailureSparesClustersThatHadTheContentBefore(t *testing.T) {
	s := rolling(outriggerv1.FleetRollbackAll)
	Report(s, protocol.FleetContent{Member: "settled", Hash: "h1", Settled: true}, time.Now())
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
	assert.Equal(t, []string{"away", "bad", "canary", "joined"}, due(s))
}

// If the stage did not wait, the rollout in the cluster that rolls back would begin only after the bake time of
// its stage.
func TestSpec12_2_AStageWaitsForRollbacksOfEarlierContent(t *testing.T) {
	now := time.Now()
	s := rolling(outriggerv1.FleetRollbackAll)
	Abort(s, protocol.Approval{Reason: "errors"}, now)
	Next(s, now)
	for _, uid := range []string{"away", "bad", "joined"} {
		Finish(s, uid, protocol.FleetResult{State: protocol.ClusterRolledBack}, now)
	}
	for _, uid := range sorted(s) {
		Report(s, protocol.FleetContent{Member: uid, Hash: "h2"}, now)
	}
	s.Planned, s.Spec = true, policy().Spec
	require.Equal(t, []string{"joined"}, Next(s, now).Start)
	Finish(s, "joined", protocol.FleetResult{State: protocol.ClusterCompleted}, now)
	step := Next(s, now)
	assert.Nil(t, s.Reached, "the canary still rolls the earlier content back")
	assert.Equal(t, now.Add(UnreachableAfter(&s.Spec)), step.Until)
	assert.Equal(t, "stage canary waits until earlier content is rolled back in 1 cluster", s.Message)
	Next(s, step.Until)
	assert.NotNil(t, s.Reached, "a cluster that does not respond blocks no stage")
	Finish(s, "canary", protocol.FleetResult{State: protocol.ClusterSuperseded}, step.Until)
	assert.Equal(t, []string{"canary"}, Next(s, step.Until).Start)
}

// The rollout of the fleet continues while the number of failed clusters does not exceed
// failure.maxFailedClusters. A user of the failed cluster then completes the rollout, or recreates the
// SidecarSet.
func TestSpec12_4_AFailedClusterBeginsAgainOnceItsRolloutIsCompleted(t *testing.T) {
	failed := protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}
	good := protocol.FleetContent{Member: "bad", Hash: "h1", Settled: true, Good: true}
	for name, c := range map[string]struct {
		content protocol.FleetContent
		change  func(*protocol.FleetState)
		state   protocol.FleetClusterState
	}{
		"completed":       {good, func(*protocol.FleetState) {}, protocol.ClusterPending},
		"lost its permit": {protocol.FleetContent{Member: "bad", Hash: "h1"}, func(*protocol.FleetState) {}, protocol.ClusterPending},
		"never permitted": {protocol.FleetContent{Member: "bad", Hash: "h1"}, func(s *protocol.FleetState) { s.Clusters["bad"].Settled = false }, protocol.ClusterFailed},
		"still failed":    {protocol.FleetContent{Member: "bad", Hash: "h1", Settled: true}, func(*protocol.FleetState) {}, protocol.ClusterFailed},
		"older rules":     {good, func(s *protocol.FleetState) { s.Rules = 2 }, protocol.ClusterFailed},
		"paused":          {good, func(s *protocol.FleetState) { s.Phase = protocol.FleetPaused }, protocol.ClusterFailed},
	} {
		s := rolling(outriggerv1.FleetPause)
		s.Spec.Failure.MaxFailedClusters = 1
		Finish(s, "bad", failed, time.Now())
		require.Equal(t, protocol.FleetRolling, s.Phase)
		s.Clusters["bad"].Settled = true
		c.change(s)
		if c.state == protocol.ClusterPending {
			assert.False(t, Knows(s.Clusters["bad"], c.content), name)
		}
		Report(s, c.content, time.Now())
		assert.Equal(t, c.state, s.Clusters["bad"].State, name)
	}
}

// An abort also rolls back the clusters that need no permit, so these clusters have to report their content.
func TestSpec12_4_AMemberReportsThatItNeedsNoPermit(t *testing.T) {
	content := protocol.FleetContent{Member: "next", Hash: "h1", Settled: true}
	s := rolling(outriggerv1.FleetPause)
	assert.False(t, Knows(s.Clusters["next"], content))
	Report(s, content, time.Now())
	assert.True(t, Knows(s.Clusters["next"], content))
	Abort(s, protocol.Approval{}, time.Now())
	assert.Contains(t, due(s), "next")
	assert.True(t, Knows(&protocol.FleetCluster{Hash: "h1", State: protocol.ClusterRolledBack}, content), "the permit stays in status")
}

func TestSpec12_2_ARunThatContinuesAsNewBeginsOnlyClustersThatAreStillRunning(t *testing.T) {
	s := &protocol.FleetState{Set: "envoy", Hash: "h1", Rules: NewestRules, Phase: protocol.FleetRolling, Clusters: map[string]*protocol.FleetCluster{
		"a": {Name: "a", State: protocol.ClusterRunning}, "b": {Name: "b", State: protocol.ClusterRunning}, "c": {Name: "c", State: protocol.ClusterRunning},
	}}
	assert.Equal(t, []string{"a", "b", "c"}, Resume(s))
	s.Clusters["b"].State = protocol.ClusterPending // as after a retry
	delete(s.Clusters, "c")
	assert.True(t, Continues(s, "a"))
	assert.False(t, Continues(s, "b"))
	assert.False(t, Continues(s, "c"))
	s.Rules = 3
	assert.True(t, Continues(s, "b"), "an older run replays")
}
