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

// A member reports new content before the workflow reads the plan for this content.
func TestStagesWithoutAPlanOfTheNewestContentOmitClusters(t *testing.T) {
	s := &protocol.FleetState{Clusters: map[string]*protocol.FleetCluster{"a": {Stage: 2}, "b": {Stage: 0}}}
	stages := Stages(s, time.Unix(1000, 0))
	if assert.Len(t, stages, 1) {
		assert.Len(t, stages[0].Clusters, 1)
	}
}

func members() *protocol.FleetRegistry {
	return &protocol.FleetRegistry{
		Policies: map[string]protocol.AppliedFleetPolicy{"edge": {Spec: policy().Spec}},
		Members: map[string]protocol.FleetMember{
			"canary": {UID: "canary", Name: "canary", Labels: map[string]string{"stage": "canary"}},
			"eu-2":   {UID: "eu-2", Name: "eu-2", Labels: map[string]string{"region": "eu"}},
			"eu-1":   {UID: "eu-1", Name: "eu-1", Labels: map[string]string{"region": "eu"}},
			"lab":    {UID: "lab", Name: "lab"},
		},
	}
}

func statesOf(stages []Stage) (states []StageState) {
	for i := range stages {
		states = append(states, stages[i].State)
	}
	return states
}

func TestSpec12_8_APlanOfTheNextContentHasThePolicyAndTheMembersOfNow(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := Plan(&protocol.FleetState{Set: "envoy"}, members(), now)
	assert.Equal(t, "edge", p.Policy)
	assert.Equal(t, []StageState{StageNext, StageNext, StageNext}, statesOf(p.Stages))
	assert.Equal(t, "content that a cluster reports", p.Stages[0].WaitsFor)
	assert.Equal(t, "the end of stage canary", p.Stages[1].WaitsFor)
	assert.Equal(t, "1h0m0s", p.Stages[0].Bake)
	assert.Equal(t, "all", p.Stages[0].Places())
	assert.Equal(t, "1", p.Stages[1].Places(), "25% of two clusters, rounded up")
	require.Len(t, p.Stages[1].Clusters, 2)
	assert.Equal(t, "eu-1", p.Stages[1].Clusters[0].Name)
	assert.Equal(t, "lab", p.Stages[2].Clusters[0].Name)

	// A rollout that has ended keeps its policy. The plan for the next content has the newest policy.
	through := rolling("")
	through.Stage, through.Phase, through.Policy, through.Spec.Stages = 3, protocol.FleetThrough, "old", through.Spec.Stages[:1]
	assert.Equal(t, p.Stages[1].State, Plan(through, members(), now).Stages[1].State)
}

func TestSpec12_8_APlanOfARolloutInProgressKeepsItsPolicy(t *testing.T) {
	now, registry := time.Unix(1_700_000_000, 0), members()
	s := &protocol.FleetState{Set: "envoy", Clusters: map[string]*protocol.FleetCluster{}}
	for uid := range registry.Members {
		Report(s, protocol.FleetContent{Member: uid, Hash: "h1"}, now)
	}
	plan := PlanOf("envoy", registry)
	Adopt(s, &plan, false)
	Next(s, now)
	Finish(s, "canary", protocol.FleetResult{State: protocol.ClusterCompleted}, now)
	Next(s, now)
	registry.Policies["edge"] = protocol.AppliedFleetPolicy{Spec: outriggerv1.FleetPolicySpec{SidecarSets: policy().Spec.SidecarSets}}
	delete(registry.Members, "eu-2")
	registry.Freeze = &protocol.FleetFreeze{Frozen: true, Reason: "peak"}
	p := Plan(s, registry, now)
	assert.Equal(t, []StageState{StageBaking, StageNext, StageNext}, statesOf(p.Stages))
	assert.Equal(t, "stage canary bakes until 2023-11-14T23:13:20Z", p.Stages[0].WaitsFor)
	assert.Equal(t, now.Add(time.Hour), *p.Stages[0].BakesUntil)
	assert.Equal(t, 1, p.Stages[0].Completed)
	require.Len(t, p.Stages[1].Clusters, 1, "the other cluster has left")
	assert.Equal(t, "peak", p.Freeze.Reason)
	registry.Freeze.Until = &now
	assert.Nil(t, Plan(s, registry, now).Freeze, "the freeze has ended")

	s.Spec.Stages[0].Approval = &outriggerv1.StepApproval{}
	later := now.Add(time.Hour)
	Next(s, later)
	assert.Equal(t, []StageState{StageAwaitingApproval, StageNext, StageNext}, statesOf(Stages(s, later)))
	assert.Equal(t, "needed", Stages(s, later)[0].Approval)
	Approve(s, protocol.Approval{By: "ann"}, later)
	assert.Equal(t, "by ann", Stages(s, later)[0].Approval)
	Next(s, later)
	Next(s, later)
	assert.Equal(t, []StageState{StageEnded, StageInProgress, StageNext}, statesOf(Stages(s, later)))
	Abort(s, protocol.Approval{By: "ann", Reason: "errors"}, later)
	stages := Stages(s, later)
	assert.Equal(t, []StageState{StageEnded, StageStopped, StageNext}, statesOf(stages))
	assert.Contains(t, stages[1].WaitsFor, "errors")
}

func TestSpec12_8_APlanWithoutAPolicySaysWhatHappens(t *testing.T) {
	registry := members()
	p := Plan(&protocol.FleetState{Set: "mesh"}, registry, time.Now())
	assert.Equal(t, "no FleetPolicy matches, so all clusters roll out at once", p.Message)
	require.Len(t, p.Stages, 1)
	assert.Len(t, p.Stages[0].Clusters, 4)
	registry.Policies = nil
	assert.Contains(t, Plan(&protocol.FleetState{Set: "mesh"}, registry, time.Now()).Message, "gives no permits")
}

func TestStagesHaveTheClustersThatMatchNoStage(t *testing.T) {
	s := rolling("")
	s.Spec.Stages[2].MaxConcurrentClusters = new(intstr.FromString("50%"))
	s.Clusters["other"] = &protocol.FleetCluster{Name: "other", Stage: 3, State: protocol.ClusterPending}
	s.Clusters["new"] = &protocol.FleetCluster{Stage: protocol.UnknownStage, State: protocol.ClusterPending}
	stages := Stages(s, time.Now())
	require.Len(t, stages, 4)
	assert.Equal(t, "-", stages[3].Title())
	assert.Equal(t, "other", stages[3].Clusters[0].Name)
	s.Stage, s.Phase = 3, protocol.FleetThrough
	assert.Equal(t, []StageState{StageEnded, StageEnded, StageEnded, StageInProgress}, statesOf(Stages(s, time.Now())))
	s.Clusters["other"].State = protocol.ClusterCompleted
	assert.Equal(t, StageEnded, Stages(s, time.Now())[3].State)
}

func TestSpec12_8_OtherContentDoesNotEndARollback(t *testing.T) {
	s := rolling(outriggerv1.FleetRollbackAll)
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
	Next(s, time.Now())
	require.Equal(t, Superseded, Report(s, protocol.FleetContent{Member: "canary", Hash: "h2"}, time.Now()))
	Next(s, time.Now())
	assert.Empty(t, Ended(s, "h1"), "clusters are rolling back")
	endRollbacks(s)
	assert.Equal(t, protocol.FleetFailed, Ended(s, "h1"))
}

func TestSpec12_8_ARolloutEndsWithAVerdictAboutItsContent(t *testing.T) {
	s := rolling("")
	assert.Empty(t, Ended(s, "h1"))
	assert.Empty(t, Ended(s, "h2"), "no cluster has reported this content")
	Finish(s, "bad", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
	assert.Equal(t, protocol.FleetPaused, Ended(s, "h1"))
	Abort(s, protocol.Approval{}, time.Now())
	assert.Empty(t, Ended(s, "h1"), "the rollback has not ended")
	endRollbacks(s)
	Next(s, time.Now())
	assert.Equal(t, protocol.FleetFailed, Ended(s, "h1"))
	Report(s, protocol.FleetContent{Member: "canary", Hash: "h2"}, time.Now())
	Report(s, protocol.FleetContent{Member: "canary", Hash: "h3"}, time.Now())
	assert.Equal(t, protocol.FleetFailed, Ended(s, "h1"))
	assert.Equal(t, protocol.FleetSuperseded, Ended(s, "h2"))
	assert.Empty(t, Ended(s, "h3"))
	assert.Equal(t, []protocol.FleetVerdict{{Hash: "h1", Phase: protocol.FleetFailed}, {Hash: "h2", Phase: protocol.FleetSuperseded}, {Hash: "h3", Phase: protocol.FleetRolling}},
		HistoryOf(s).Contents)
}
