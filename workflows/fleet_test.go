package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/suite"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

func TestFleets(t *testing.T) { suite.Run(t, &fleetSuite{}) }

// fleetSuite simulates a fleet. The rollout in a cluster takes a minute.
type fleetSuite struct {
	suite.Suite
	testsuite.WorkflowTestSuite
	env  *testsuite.TestWorkflowEnvironment
	plan protocol.FleetPlan
	// bad contains the clusters whose rollout fails. lost is a cluster that does not respond to a rollback.
	bad  map[string]bool
	lost string
	// events lists the rollouts and rollbacks. appending guards events, because activities of several clusters
	// append concurrently.
	events         []fleetEvent
	appending      sync.Mutex
	begin          time.Time
	running, worst int
}

type fleetEvent struct {
	what, cluster string
	at            time.Duration
}

func (s *fleetSuite) SetupTest() {
	s.env = s.NewTestWorkflowEnvironment()
	s.env.SetTestTimeout(time.Minute)
	s.env.RegisterWorkflowWithOptions(Fleet, workflow.RegisterOptions{Name: protocol.FleetWorkflow})
	register := func(name string, function any) {
		s.env.RegisterActivityWithOptions(function, activity.RegisterOptions{Name: name})
	}
	register(protocol.FleetPlanActivity, func(context.Context, string) (protocol.FleetPlan, error) { return s.plan, nil })
	s.bad, s.lost, s.events, s.running, s.worst, s.begin = map[string]bool{}, "", nil, 0, 0, s.env.Now()
	register(protocol.FleetRolloutActivity, func(_ context.Context, _ protocol.FleetRolloutInput) (protocol.FleetResult, error) {
		return protocol.FleetResult{}, errors.New("not simulated")
	})
	register(protocol.FleetRollbackActivity, func(_ context.Context, _ protocol.FleetRolloutInput) (protocol.FleetResult, error) {
		return protocol.FleetResult{}, errors.New("not simulated")
	})
	s.plan = protocol.FleetPlan{Policy: "edge", Spec: outriggerv1.FleetPolicySpec{
		Stages: []outriggerv1.FleetStage{
			{Name: "canary", Clusters: outriggerv1.FleetClusters{MatchLabels: map[string]string{"stage": "canary"}}, Bake: &metav1.Duration{Duration: time.Hour}},
			{Name: "rest", MaxConcurrentClusters: new(intstr.FromInt32(10))},
		},
	}}
}

// members adds n clusters with the label stage to the fleet.
func (s *fleetSuite) members(stage string, n int) {
	for i := range n {
		name := fmt.Sprintf("%s-%03d", stage, i)
		s.plan.Members = append(s.plan.Members, protocol.FleetMember{UID: name, Name: name, Labels: map[string]string{"stage": stage}})
	}
}

// simulate registers activities in which each rollout takes one minute of workflow time.
func (s *fleetSuite) simulate() {
	act := func(what string, state func(cluster string) protocol.FleetClusterState) func(context.Context, protocol.FleetRolloutInput) (protocol.FleetResult, error) {
		return func(ctx context.Context, _ protocol.FleetRolloutInput) (protocol.FleetResult, error) {
			cluster := activity.GetInfo(ctx).TaskQueue[len(protocol.FleetTaskQueue)+1:]
			s.appending.Lock()
			defer s.appending.Unlock()
			s.events = append(s.events, fleetEvent{what, cluster, s.env.Now().Sub(s.begin)})
			return protocol.FleetResult{State: state(cluster), Reason: what}, nil
		}
	}
	s.env.OnActivity(protocol.FleetRolloutActivity, mock.Anything, mock.Anything).Return(act("rollout", func(cluster string) protocol.FleetClusterState {
		if s.bad[cluster] {
			return protocol.ClusterFailed
		}
		return protocol.ClusterCompleted
	})).After(time.Minute)
	s.env.OnActivity(protocol.FleetRollbackActivity, mock.Anything, mock.Anything).Return(func(ctx context.Context, input protocol.FleetRolloutInput) (protocol.FleetResult, error) {
		if activity.GetInfo(ctx).TaskQueue == protocol.FleetMemberTaskQueue(s.lost) {
			return protocol.FleetResult{}, activity.ErrResultPending
		}
		return act("rollback", func(string) protocol.FleetClusterState { return protocol.ClusterRolledBack })(ctx, input)
	}).After(time.Minute)
	s.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if info.ActivityType.Name == protocol.FleetRolloutActivity {
			s.running++
			s.worst = max(s.worst, s.running)
		}
	})
	s.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == protocol.FleetRolloutActivity {
			s.running--
		}
	})
}

// deliver makes all clusters report the content hash. The cluster first reports one second before the other
// clusters.
func (s *fleetSuite) deliver(after time.Duration, first, hash string) {
	s.report(after, first, hash)
	for _, member := range s.plan.Members {
		s.report(after+time.Second, member.UID, hash)
	}
}

func (s *fleetSuite) report(after time.Duration, cluster, hash string) {
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.ContentSignal, protocol.FleetContent{Member: cluster, Hash: hash})
	}, after)
}

func (s *fleetSuite) request(after time.Duration, name string, request protocol.FleetStepRequest) {
	s.env.RegisterDelayedCallback(func() {
		s.env.UpdateWorkflow(name, fmt.Sprint(name, after), &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { s.NoError(err) }, OnComplete: func(_ any, err error) { s.NoError(err) },
		}, request)
	}, after)
}

// run runs the workflow for the time limit, and returns the state of the fleet at the end.
func (s *fleetSuite) run(limit time.Duration) (state protocol.FleetState) {
	s.simulate()
	s.env.RegisterDelayedCallback(func() {
		state = s.query()
		s.env.CancelWorkflow()
	}, limit)
	s.env.ExecuteWorkflow(protocol.FleetWorkflow, protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling})
	return state
}

func (s *fleetSuite) query() (state protocol.FleetState) {
	answer, err := s.env.QueryWorkflow(protocol.StatusQuery)
	s.Require().NoError(err)
	s.Require().NoError(answer.Get(&state))
	return state
}

func (s *fleetSuite) count(what string) (n int) {
	for _, event := range s.events {
		if event.what == what {
			n++
		}
	}
	return n
}

func (s *fleetSuite) TestSpec12_2_AStageBeginsAfterTheEarlierStageCompletedAndBaked() {
	s.members("canary", 2)
	s.members("rest", 3)
	s.deliver(time.Second, "rest-001", "h1")
	state := s.run(3 * time.Hour)
	s.Equal(protocol.FleetThrough, state.Phase)
	s.Require().Len(s.events, 5)
	s.ElementsMatch([]string{"canary-000", "canary-001"}, s.clusters()[:2])
	s.GreaterOrEqual(s.events[2].at-s.events[1].at, time.Hour)
}

func (s *fleetSuite) TestSpec12_2_AnApprovalWaitsForAWeek() {
	s.plan.Spec.Stages[0].Approval = &outriggerv1.StepApproval{}
	s.members("canary", 1)
	s.members("rest", 1)
	s.deliver(time.Second, "canary-000", "h1")
	const week = 7 * 24 * time.Hour
	s.request(week, protocol.ApproveUpdate, protocol.FleetStepRequest{Approval: protocol.Approval{By: "ann"}, Stage: "canary"})
	s.Equal(protocol.FleetThrough, s.run(week+time.Hour).Phase)
	s.Require().Len(s.events, 2)
	s.GreaterOrEqual(s.events[1].at, week)
}

// Each of 500 clusters rolls out once, and at most ten at the same time.
func (s *fleetSuite) TestSpec12_2_AFleetOf500Clusters() {
	s.members("canary", 1)
	s.members("rest", 499)
	for i := range 500 {
		s.report(time.Second+time.Duration(i)*time.Millisecond, s.plan.Members[i].UID, "h1")
	}
	state := s.run(24 * time.Hour)
	s.Equal(protocol.FleetThrough, state.Phase, state.Message)
	s.Equal(500, s.count("rollout"))
	s.Equal(10, s.worst)
}

func (s *fleetSuite) TestSpec12_2_ALongHistoryContinuesAsNew() {
	s.members("canary", 1)
	s.deliver(time.Second, "canary-000", "h1")
	s.env.RegisterDelayedCallback(func() { s.env.SetCurrentHistoryLength(longHistory) }, 10*time.Second)
	s.run(3 * time.Hour)
	var next *workflow.ContinueAsNewError
	s.Require().ErrorAs(s.env.GetWorkflowError(), &next)
}

// A cluster that does not respond blocks a rollback until the cluster is removed from the fleet.
func (s *fleetSuite) TestSpec12_4_ARemovedClusterBlocksNothing() {
	s.members("canary", 1)
	s.members("lost", 1)
	s.deliver(time.Second, "canary-000", "h1")
	s.lost = "lost-000"
	s.request(2*time.Hour, protocol.AbortUpdate, protocol.FleetStepRequest{})
	s.env.RegisterDelayedCallback(func() {
		s.Equal(protocol.FleetRollingBack, s.query().Phase)
		s.plan.Members = s.plan.Members[:1]
		s.env.SignalWorkflow(protocol.MembersSignal, nil)
	}, 3*time.Hour)
	state := s.run(4 * time.Hour)
	s.Equal(protocol.FleetFailed, state.Phase)
	s.NotContains(state.Clusters, "lost-000")
}

func (s *fleetSuite) TestSpec12_3_AMemberReadsWhatTheFleetKnows() {
	s.members("canary", 1)
	s.deliver(time.Second, "canary-000", "h1")
	s.env.RegisterDelayedCallback(func() {
		var cluster, unknown *protocol.FleetCluster
		for uid, into := range map[string]**protocol.FleetCluster{"canary-000": &cluster, "other": &unknown} {
			answer, err := s.env.QueryWorkflow(protocol.ClusterQuery, uid)
			s.Require().NoError(err)
			s.Require().NoError(answer.Get(into))
		}
		s.Equal("h1", cluster.Hash)
		s.Nil(unknown)
	}, time.Hour)
	s.run(2 * time.Hour)
}

func (s *fleetSuite) TestSpec12_3_OtherContentSupersedes() {
	s.members("canary", 1)
	s.members("rest", 1)
	s.deliver(time.Second, "canary-000", "h1")
	s.report(10*time.Minute, "rest-000", "h2")
	s.run(3 * time.Hour)
	var next *workflow.ContinueAsNewError
	s.Require().ErrorAs(s.env.GetWorkflowError(), &next)
	var state protocol.FleetState
	s.Require().NoError(converter.GetDefaultDataConverter().FromPayloads(next.Input, &state))
	s.Equal("h2", state.Hash)
	s.Equal([]protocol.FleetVerdict{{Hash: "h1", Phase: protocol.FleetSuperseded}}, state.Verdicts)
	s.Equal(1, s.count("rollout"))
}

func (s *fleetSuite) TestSpec12_4_AFailureStopsTheFleet() {
	for action, rollbacks := range map[outriggerv1.FleetAction]int{
		outriggerv1.FleetPause: 0, outriggerv1.FleetRollbackStage: 2, outriggerv1.FleetRollbackAll: 3,
	} {
		s.Run(string(action), func() {
			s.SetupTest()
			s.plan.Spec.Failure.Action = action
			s.plan.Spec.Stages[1].MaxConcurrentClusters = new(intstr.FromInt32(1))
			s.members("canary", 1)
			s.members("rest", 4)
			s.bad["rest-001"] = true
			s.deliver(time.Second, "canary-000", "h1")
			state := s.run(3 * time.Hour)
			s.Equal("cluster rest-001 failed: rollout", state.Message)
			s.Equal(rollbacks, s.count("rollback"))
			s.Equal(3, s.count("rollout"))
			want := protocol.FleetFailed
			if action == outriggerv1.FleetPause {
				want = protocol.FleetPaused
			}
			s.Equal(want, state.Phase)
		})
	}
}

func (s *fleetSuite) TestSpec12_4_ARetryBeginsWithTheFirstStage() {
	s.plan.Spec.Failure.Action = outriggerv1.FleetRollbackStage
	s.members("canary", 1)
	s.members("rest", 1)
	s.bad["canary-000"] = true
	s.deliver(time.Second, "canary-000", "h1")
	s.env.RegisterDelayedCallback(func() { s.bad = nil }, time.Hour)
	s.request(time.Hour+time.Minute, protocol.RetryUpdate, protocol.FleetStepRequest{Approval: protocol.Approval{By: "ann"}})
	state := s.run(5 * time.Hour)
	s.Equal(protocol.FleetThrough, state.Phase)
	s.Equal(2, state.Attempt)
	s.Equal([]string{"canary-000", "canary-000", "canary-000", "rest-000"}, s.clusters())
}

func (s *fleetSuite) clusters() (all []string) {
	for _, event := range s.events {
		all = append(all, event.cluster)
	}
	return all
}

func (s *fleetSuite) TestSpec12_4_AnAbortRollsAllClustersBack() {
	s.members("canary", 1)
	s.members("rest", 2)
	s.deliver(time.Second, "canary-000", "h1")
	s.request(2*time.Hour, protocol.AbortUpdate, protocol.FleetStepRequest{Approval: protocol.Approval{By: "ann", Reason: "errors"}})
	state := s.run(5 * time.Hour)
	s.Equal(protocol.FleetFailed, state.Phase)
	s.Equal("aborted from ann: errors", state.Message)
	s.Equal(3, s.count("rollback"))
	s.True(slices.ContainsFunc(state.Verdicts, func(v protocol.FleetVerdict) bool { return v.Phase == protocol.FleetFailed }))
}

// The registry does not respond after a member has left, and returns an error later.
func (s *fleetSuite) TestSpec12_4_AnAbortAndARetryDoNotWaitForTheMembers() {
	s.members("canary", 1)
	s.members("rest", 2)
	s.deliver(time.Second, "canary-000", "h1")
	var fault error
	s.env.OnActivity(protocol.FleetPlanActivity, mock.Anything, mock.Anything).Return(func(context.Context, string) (protocol.FleetPlan, error) {
		return s.plan, fault
	})
	s.env.RegisterDelayedCallback(func() {
		fault = activity.ErrResultPending
		s.env.SignalWorkflow(protocol.MembersSignal, nil)
	}, 2*time.Hour)
	s.request(3*time.Hour, protocol.AbortUpdate, protocol.FleetStepRequest{})
	s.env.RegisterDelayedCallback(func() {
		s.Equal(protocol.FleetFailed, s.query().Phase)
		s.Equal(3, s.count("rollback"))
		fault = errors.New("no members can be read")
	}, 4*time.Hour)
	s.request(5*time.Hour, protocol.RetryUpdate, protocol.FleetStepRequest{})
	s.env.RegisterDelayedCallback(func() {
		s.Equal(3, s.count("rollout"), "no cluster begins before the policy is read")
		fault, s.plan.Policy = nil, "edge-2"
	}, 5*time.Hour+20*time.Second)
	state := s.run(9 * time.Hour)
	s.Equal(protocol.FleetThrough, state.Phase, state.Message)
	s.Equal("edge-2", state.Policy)
	s.Equal(6, s.count("rollout"))
}

// Cluster late-000 announces itself and reports content while the members are being read. The result of the read
// lacks the cluster.
func (s *fleetSuite) TestSpec12_2_AMemberThatJoinsDuringAReadBegins() {
	s.members("canary", 1)
	s.deliver(time.Second, "canary-000", "h1")
	reads := 0
	s.env.OnActivity(protocol.FleetPlanActivity, mock.Anything, mock.Anything).After(time.Minute).Return(func(context.Context, string) (protocol.FleetPlan, error) {
		plan := s.plan
		if reads++; reads == 1 {
			s.members("late", 1)
		}
		return plan, nil
	})
	s.report(30*time.Second, "late-000", "h1")
	state := s.run(3 * time.Hour)
	s.Equal(protocol.FleetThrough, state.Phase, state.Message)
	s.Equal([]string{"canary-000", "late-000"}, s.clusters())
}

// Cluster rest-001 has a rollout in progress when the run continues as new.
func (s *fleetSuite) TestSpec12_2_ANewRunContinuesInTheSameCluster() {
	s.plan.Spec.Stages[1].MaxConcurrentClusters = new(intstr.FromInt32(1))
	s.members("canary", 1)
	s.members("rest", 2)
	state := protocol.FleetState{Set: "envoy", Hash: "h1", Attempt: 1, Planned: true, Policy: "edge", Spec: s.plan.Spec, Stage: 1, Phase: protocol.FleetRolling,
		Clusters: map[string]*protocol.FleetCluster{
			"canary-000": {Name: "canary-000", Hash: "h1", State: protocol.ClusterCompleted, Begun: true},
			"rest-000":   {Name: "rest-000", Hash: "h1", Stage: 1, State: protocol.ClusterPending},
			"rest-001":   {Name: "rest-001", Hash: "h1", Stage: 1, State: protocol.ClusterRunning, Begun: true},
		}}
	s.simulate()
	s.env.RegisterDelayedCallback(s.env.CancelWorkflow, time.Hour)
	s.env.ExecuteWorkflow(protocol.FleetWorkflow, state)
	s.Equal([]string{"rest-001", "rest-000"}, s.clusters())
	s.Equal(1, s.worst)
}
