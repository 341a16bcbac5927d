package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// gatedPolicy returns a policy with the gates smoke and errors in its first stage.
func gatedPolicy() *outriggerv1.FleetPolicy {
	p := policy()
	p.Spec.Gates = []outriggerv1.RolloutGate{
		{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Address: "http://prometheus:9090", Query: `errors{set="{{.SidecarSet}}"}`, Samples: 2, Success: "value < 1.0", Failure: "value > 2.0"}},
		{Name: "smoke", Webhook: &outriggerv1.WebhookGate{URL: "https://checks/smoke?a=b"}},
		{Name: "manual", Workflow: &outriggerv1.WorkflowGate{Type: "Check", TaskQueue: "checks"}},
	}
	p.Spec.Stages[0].Gates = []string{"smoke", "errors"}
	return p
}

func TestSpec12_2_WrongGatesAreRejected(t *testing.T) {
	require.NoError(t, Validate(gatedPolicy()))
	for says, change := range map[string]func(spec *outriggerv1.FleetPolicySpec, errors, smoke, manual *outriggerv1.RolloutGate){
		"spec.gates: a policy must have at most 20 gates": func(spec *outriggerv1.FleetPolicySpec, _, _, _ *outriggerv1.RolloutGate) {
			spec.Gates = append(spec.Gates, make([]outriggerv1.RolloutGate, 18)...)
		},
		`spec.gates[1].name: the names of gates must differ`: func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) { s.Name = "errors" },
		`spec.gates[1].name: a lowercase RFC 1123 label`:     func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) { s.Name = "Smoke" },
		`spec.stages[0].gates[1]: gate "error" is not in spec.gates`: func(spec *outriggerv1.FleetPolicySpec, _, _, _ *outriggerv1.RolloutGate) {
			spec.Stages[0].Gates[1] = "error"
		},
		`spec.stages[0].gates[1]: gate "smoke" occurs twice`: func(spec *outriggerv1.FleetPolicySpec, _, _, _ *outriggerv1.RolloutGate) {
			spec.Stages[0].Gates[1] = "smoke"
		},
		`spec.gates[1].name: the gate must have exactly one of`: func(_ *outriggerv1.FleetPolicySpec, e, s, _ *outriggerv1.RolloutGate) { s.Prometheus = e.Prometheus },
		`spec.gates[0].prometheus.credentials: a gate of a fleet must not have credentials`: func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) {
			e.Prometheus.Credentials = &outriggerv1.GateCredentials{Name: "outrigger-gates"}
		},
		`spec.gates[1].webhook.credentials: a gate of a fleet must not have credentials`: func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) {
			s.Webhook.Credentials = &outriggerv1.GateCredentials{Name: "outrigger-gates"}
		},
		`spec.gates[1].webhook.url: "checks/smoke" is not an absolute URL`: func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) { s.Webhook.URL = "checks/smoke" },
		`spec.gates[1].webhook.url: the address must not have a user`: func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) {
			s.Webhook.URL = "https://a:b@c"
		},
		`spec.gates[1].webhook.url: the address must not have a fragment`: func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) { s.Webhook.URL = "https://a#b" },
		`spec.gates[1].webhook.timeout: use a positive duration`: func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) {
			s.Webhook.Timeout = &metav1.Duration{Duration: time.Hour}
		},
		`spec.gates[1].webhook.interval: use a duration of at least 1s`: func(_ *outriggerv1.FleetPolicySpec, _, s, _ *outriggerv1.RolloutGate) {
			s.Webhook.Interval = &metav1.Duration{}
		},
		`spec.gates[0].prometheus.address: the address must not have a query`: func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) { e.Prometheus.Address += "?a" },
		`spec.gates[0].prometheus.query: write a query`:                       func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) { e.Prometheus.Query = "" },
		`spec.gates[0].prometheus.query: "{{.Pod}}": `: func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) {
			e.Prometheus.Query = "{{.Pod}}"
		},
		`spec.gates[0].prometheus.success: write an expression`: func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) { e.Prometheus.Success = "" },
		`spec.gates[0].prometheus.success: "value <": `: func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) {
			e.Prometheus.Success = "value <"
		},
		`spec.gates[0].prometheus.samples: use a number from 1 to 1000`: func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) { e.Prometheus.Samples = 1001 },
		`spec.gates[0].prometheus.failureLimit: use a number`:           func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) { e.Prometheus.FailureLimit = 2 },
		`spec.gates[0].prometheus.interval: use a duration of at least 1s`: func(_ *outriggerv1.FleetPolicySpec, e, _, _ *outriggerv1.RolloutGate) {
			e.Prometheus.Interval = &metav1.Duration{}
		},
		`spec.gates[2].workflow.type: write the type`:            func(_ *outriggerv1.FleetPolicySpec, _, _, m *outriggerv1.RolloutGate) { m.Workflow.Type = "" },
		`spec.gates[2].workflow.taskQueue: write the task queue`: func(_ *outriggerv1.FleetPolicySpec, _, _, m *outriggerv1.RolloutGate) { m.Workflow.TaskQueue = "" },
	} {
		t.Run(says, func(t *testing.T) {
			wrong := gatedPolicy()
			change(&wrong.Spec, &wrong.Spec.Gates[0], &wrong.Spec.Gates[1], &wrong.Spec.Gates[2])
			require.ErrorContains(t, Validate(wrong), says)
		})
	}
}

// measuring returns a rollout whose first stage has completed its only cluster, and the time at which the
// bake time of this stage has ended.
func measuring(t *testing.T, change func(*outriggerv1.FleetPolicySpec)) (s *protocol.FleetState, now time.Time) {
	now = time.Unix(1_700_000_000, 0)
	p := gatedPolicy()
	if change != nil {
		change(&p.Spec)
	}
	s = &protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling, Rules: NewestRules}
	for _, uid := range []string{"canary", "eu-1"} {
		Report(s, protocol.FleetContent{Member: uid, Hash: "h1"}, now)
	}
	registry := members()
	registry.Policies["edge"] = protocol.AppliedFleetPolicy{Spec: p.Spec}
	plan := PlanOf("envoy", registry)
	Adopt(s, &plan, false)
	Next(s, now)
	Finish(s, "canary", protocol.FleetResult{State: protocol.ClusterCompleted}, now)
	require.Nil(t, Next(s, now).Measure, "the stage bakes")
	return s, now.Add(time.Hour)
}

// measured records the measurement that is due, and returns the input of the measurement.
func measured(t *testing.T, s *protocol.FleetState, now time.Time, gate string, value string, phase protocol.GatePhase) *protocol.FleetGateInput {
	t.Helper()
	input := Next(s, now).Measure
	require.NotNil(t, input, s.Message)
	require.Equal(t, gate, input.Gate.Name)
	Measured(s, input, protocol.Measurement{Value: value, Phase: phase}, now)
	return input
}

func TestSpec12_2_TheGatesOfAStageMeasureBetweenItsBakeTimeAndItsApproval(t *testing.T) {
	s, now := measuring(t, func(p *outriggerv1.FleetPolicySpec) { p.Stages[0].Approval = &outriggerv1.StepApproval{} })
	Approve(s, protocol.Approval{By: "ann"}, now)
	input := Next(s, now).Measure
	assert.Equal(t, &protocol.FleetGateInput{
		Set: "envoy", Hash: "h1", Policy: "edge", Stage: "canary", Gate: s.Spec.Gates[1], Reached: now.Add(-time.Hour), Attempt: 1,
	}, input)
	assert.Equal(t, "stage canary waits for gate smoke", s.Message)
	measured(t, s, now, "smoke", "", protocol.GateRunning)
	input = measured(t, s, now, "smoke", "", protocol.GateSuccess)
	assert.Equal(t, now.Add(30*time.Second), input.NotBefore, "after the answer Running, the gate waits for its interval")
	measured(t, s, now, "errors", "0.5", protocol.GateSuccess)
	input = measured(t, s, now, "errors", "0.7", protocol.GateSuccess)
	assert.Equal(t, "0.5", input.Previous)
	assert.Equal(t, now.Add(time.Minute), input.NotBefore)
	assert.Len(t, s.Gates, 2)
	step := Next(s, now)
	assert.Nil(t, step.Measure)
	assert.True(t, step.Refresh)
	assert.Empty(t, s.Gates)
	assert.Equal(t, 1, s.Stage)
}

func TestSpec12_2_AStageWaitsForItsApprovalAfterItsGates(t *testing.T) {
	s, now := measuring(t, func(p *outriggerv1.FleetPolicySpec) {
		p.Stages[0].Approval, p.Stages[0].Gates = &outriggerv1.StepApproval{}, []string{"smoke"}
	})
	assert.Equal(t, StageMeasuring, Stages(s, now)[0].State)
	measured(t, s, now, "smoke", "", protocol.GateSuccess)
	assert.Equal(t, Step{}, Next(s, now))
	assert.Equal(t, "stage canary waits for approval", s.Message)
	assert.Equal(t, StageAwaitingApproval, Stages(s, now)[0].State)
}

func TestSpec12_2_PeopleSeeTheGatesOfEachStage(t *testing.T) {
	s, now := measuring(t, nil)
	measured(t, s, now, "smoke", "", protocol.GateSuccess)
	measured(t, s, now, "errors", "0.5", protocol.GateSuccess)
	Next(s, now)
	stage := Stages(s, now)[0]
	assert.Equal(t, "stage canary waits for gate errors: 1 of 2 samples, last value 0.5", stage.WaitsFor)
	require.Len(t, stage.Gates, 2)
	assert.Equal(t, protocol.GateSuccess, stage.Gates[0].Phase)
	assert.Equal(t, protocol.GateRunning, stage.Gates[1].Phase)
	assert.Equal(t, "smoke: success; errors: running, 1 of 2 samples, last value 0.5", stage.GateWords())
	assert.Equal(t, "smoke: pending; errors: pending", Plan(&protocol.FleetState{Set: "envoy"}, &protocol.FleetRegistry{
		Policies: map[string]protocol.AppliedFleetPolicy{"edge": {Spec: s.Spec}},
	}, now).Stages[0].GateWords())
	assert.Empty(t, Stages(s, now)[1].GateWords())
	s.Stage = 1
	assert.Equal(t, "smoke; errors", Stages(s, now)[0].GateWords(), "the stage has ended")
}

// A failed gate stops the rollout, even if failure.maxFailedClusters is not exceeded.
func TestSpec12_2_AFailedGateStopsTheFleet(t *testing.T) {
	for action, phase := range map[outriggerv1.FleetAction]protocol.FleetPhase{"": protocol.FleetPaused, outriggerv1.FleetRollbackStage: protocol.FleetRollingBack} {
		s, now := measuring(t, func(p *outriggerv1.FleetPolicySpec) { p.Failure.Action, p.Failure.MaxFailedClusters = action, 5 })
		measured(t, s, now, "smoke", "", protocol.GateSuccess)
		measured(t, s, now, "errors", "3", protocol.GateFailure)
		assert.Equal(t, phase, s.Phase)
		assert.Equal(t, "gate errors of stage canary failed: 1 of 2 samples, 1 failed, last value 3", s.Message)
		assert.Equal(t, protocol.FleetFailed, VerdictOf(s, "h1"))
		assert.Equal(t, "failed", s.Events[len(s.Events)-1].What)
		step := Next(s, now)
		assert.Nil(t, step.Measure)
		if action != "" {
			assert.Equal(t, []string{"canary"}, step.RollBack)
		}
		Retry(s, protocol.Approval{}, now)
		assert.Empty(t, s.Gates)
	}
}

// An inconclusive gate gives no verdict about the content.
func TestSpec12_2_AnInconclusiveGatePausesTheFleet(t *testing.T) {
	s, now := measuring(t, func(p *outriggerv1.FleetPolicySpec) { p.Failure.Action = outriggerv1.FleetRollbackAll })
	first := measured(t, s, now, "smoke", "", protocol.GateInconclusive)
	assert.Equal(t, protocol.FleetPaused, s.Phase)
	assert.Equal(t, "gate smoke of stage canary is inconclusive", s.Message)
	assert.Empty(t, VerdictOf(s, "h1"))
	assert.Nil(t, Next(s, now).Measure)
	assert.Equal(t, "paused", s.Events[len(s.Events)-1].What)
	require.NoError(t, CheckRetry(s, protocol.FleetStepRequest{}))
	Retry(s, protocol.Approval{}, now)
	assert.Empty(t, s.Gates)
	s.Planned = true
	Next(s, now)
	Finish(s, "canary", protocol.FleetResult{State: protocol.ClusterCompleted}, now)
	Next(s, now)
	again := Next(s, now.Add(time.Hour)).Measure
	assert.False(t, again.Same(first), "another attempt")
	Measured(s, first, protocol.Measurement{Phase: protocol.GateFailure}, now)
	assert.Empty(t, s.Gates, "a late answer to the earlier attempt does not count")
}

func TestSpec12_2_NothingWaitsForAMeasurement(t *testing.T) {
	s, now := measuring(t, nil)
	input := Next(s, now).Measure
	Abort(s, protocol.Approval{}, now)
	assert.Nil(t, Next(s, now).Measure)
	Measured(s, input, protocol.Measurement{Phase: protocol.GateSuccess}, now)
	assert.Empty(t, s.Gates)
	assert.Equal(t, Superseded, Report(s, protocol.FleetContent{Member: "canary", Hash: "h2"}, now))
	assert.Empty(t, s.Gates)
	Measured(s, input, protocol.Measurement{Phase: protocol.GateFailure}, now)
	assert.Equal(t, protocol.FleetRolling, s.Phase)
}
