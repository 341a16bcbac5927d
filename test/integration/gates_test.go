package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// gate adds the gate errors to the first step of a scenario.
func (s *scenario) gate(p *prometheus, samples int32) {
	s.t.Helper()
	p.scenario, p.samples = s, int(samples)
	gate := outriggerv1.RolloutGate{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{
		Address: p.URL, Query: `errors{sidecarset="{{.SidecarSet}}"}`, Samples: samples, Interval: &metav1.Duration{Duration: time.Second},
		Success: "value < 0.1", Credentials: &outriggerv1.GateCredentials{Name: "outrigger-gates"},
	}}
	step := outriggerv1.RolloutStep{Name: "canary", UpTo: intstr.FromInt32(1), Gates: []string{"errors"}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"gates": []any{gate}, "steps": []any{step}}})
	require.NoError(s.t, err)
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	require.NoError(s.t, stack.kube.Patch(s.ctx, policy, client.RawPatch(types.MergePatchType, patch)))
}

func gateCredentials(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "outrigger-gates", Namespace: "kruise-system"}, StringData: map[string]string{"token": "s3cret"}}
	require.NoError(t, stack.kube.Create(t.Context(), secret))
	t.Cleanup(func() { require.NoError(t, stack.kube.Delete(context.WithoutCancel(t.Context()), secret)) })
}

func gateOf(set *v1alpha1.SidecarSet) v1alpha1.StageGate {
	if rollout := set.Status.Rollout; rollout != nil && rollout.Generation == set.Generation && rollout.Stage != nil && len(rollout.Stage.Gates) > 0 {
		return rollout.Stage.Gates[0]
	}
	return v1alpha1.StageGate{}
}

// verdicts returns the ids of the events of the measurements that the newest run has counted. A measurement
// that the run has cancelled does not count.
func (s *scenario) verdicts() (ids []int64) {
	s.t.Helper()
	open := map[int64]bool{}
	s.events(func(event *historypb.HistoryEvent) {
		if event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == protocol.MeasureGateActivity {
			open[event.EventId] = true
		}
		delete(open, event.GetActivityTaskCancelRequestedEventAttributes().GetScheduledEventId())
		if open[event.GetActivityTaskCompletedEventAttributes().GetScheduledEventId()] {
			ids = append(ids, event.EventId)
		}
	})
	return ids
}

// A real Prometheus scrapes the target. Each gate has exactly one outcome. The subtests that stop the workers
// or the target are not parallel, so they end before the parallel subtests run.
func TestSpec11_14_AGateDecidesAboutTheNextStep(t *testing.T) {
	gateCredentials(t)
	scraped := startPrometheus(t)
	t.Run("good", func(t *testing.T) {
		t.Parallel()
		s, p := newStagedScenario(t, 4, intstr.FromInt32(4)), scraped.answer(t, "0.01", "0.02")
		s.gate(p, 4)
		s.upgradeTo("side:v2")
		s.await(observer.Converged(4))
		s.awaitPhase(protocol.PhaseComplete)
		verdicts := s.verdicts()
		require.Len(t, verdicts, 4)
		// The test uses the smallest distance, because a signal to the run adds events to the history.
		assert.LessOrEqual(t, min(verdicts[1]-verdicts[0], verdicts[2]-verdicts[1], verdicts[3]-verdicts[2]), int64(7), "a sample adds too many events to the history")
	})
	t.Run("bad", func(t *testing.T) {
		t.Parallel()
		s, p := newRollbackScenario(t, 4), scraped.answer(t, "0.01", "0.5")
		s.gate(p, 2)
		s.upgradeTo("side:v2")
		set := s.awaitQuarantine()
		assert.Equal(t, "gate errors of step 1 of 2 (canary) failed: 2 of 2 samples, 1 failed, last value 0.5", set.Status.Rollout.Quarantine.Reason)
		assert.Equal(t, 1, s.watched.Asked("side:v2"))
	})
	t.Run("without a clear answer", func(t *testing.T) {
		t.Parallel()
		s, p := newStagedScenario(t, 4, intstr.FromInt32(4)), scraped.answer(t, "0.01", "NaN", "0.02")
		s.gate(p, 2)
		s.upgradeTo("side:v2")
		assert.Contains(t, s.awaitReason(v1alpha1.ReasonGateInconclusive),
			"paused by RolloutPolicy "+s.name+": gate errors of step 1 of 1 (canary) is inconclusive: 2 of 2 samples, 1 inconclusive (the value is NaN)")
		gate := gateOf(s.awaitSet("the gate in status", func(set *v1alpha1.SidecarSet) bool { return gateOf(set).Phase == string(protocol.GateInconclusive) }))
		require.Len(t, gate.Measurements, 2)
		assert.Equal(t, "0.01", gate.Measurements[0].Value)
		assert.Equal(t, 1, s.watched.View().Updated)
		s.signal(protocol.ResumeSignal, protocol.Pause{By: "ann"})
		s.await(observer.Converged(4))
		s.awaitPhase(protocol.PhaseComplete)
		assert.Len(t, s.verdicts(), 4, "the gate measured again from the beginning")
	})
	t.Run("the target is away", func(t *testing.T) {
		s, p := newRollbackScenario(t, 4), scraped.answer(t, away, "0.01")
		s.gate(p, 2)
		s.upgradeTo("side:v2")
		assert.Contains(t, s.awaitReason(v1alpha1.ReasonGateInconclusive), "2 of 2 samples, 1 inconclusive, last value 0.01")
		gate := gateOf(s.awaitSet("the gate in status", func(set *v1alpha1.SidecarSet) bool { return gateOf(set).Phase == string(protocol.GateInconclusive) }))
		require.Len(t, gate.Measurements, 2)
		assert.Equal(t, "the query has no data", gate.Measurements[0].Message)
		assert.Equal(t, 1, s.watched.View().Updated)
	})
	t.Run("down and good again", func(t *testing.T) {
		t.Parallel()
		s, p := newStagedScenario(t, 4, intstr.FromInt32(4)), scraped.answer(t, "down down 0.01", "down 0.01")
		s.gate(p, 2)
		s.upgradeTo("side:v2")
		s.await(observer.Converged(4))
		s.awaitPhase(protocol.PhaseComplete)
		assert.Len(t, s.verdicts(), 2)
	})
	t.Run("promoted while it hangs", func(t *testing.T) {
		t.Parallel()
		s, p := newStagedScenario(t, 4, intstr.FromInt32(4)), scraped.answer(t, hang)
		s.gate(p, 2)
		s.upgradeTo("side:v2")
		<-p.began
		assert.Contains(t, s.awaitReason(v1alpha1.ReasonGateRunning), "step 1 of 1 (canary) waits for gate errors; 1 of 4 pods updated")
		_, err := s.requestStep(protocol.PromoteUpdate, 0)
		require.NoError(t, err)
		s.await(observer.Converged(4))
	})
	t.Run("both workers are killed during each measurement", func(t *testing.T) {
		s, p := newStagedScenario(t, 4, intstr.FromInt32(4)), scraped.answer(t, "hang 0.01", "hang 0.02")
		s.gate(p, 2)
		s.upgradeTo("side:v2")
		for range 2 {
			<-p.began
			for _, worker := range []string{"worker-1", "worker-2"} {
				require.NoError(t, stack.Kill(worker))
			}
			for _, worker := range []string{"worker-1", "worker-2"} {
				require.NoError(t, stack.StartAgain(s.ctx, worker))
			}
		}
		s.await(observer.Converged(4))
		s.awaitPhase(protocol.PhaseComplete)
		assert.Len(t, s.verdicts(), 2, "no measurement counts twice")
	})
}

// If the history of a run is lost, the next run continues with the measurements in the status.
func TestSpec11_14_TheMeasurementsSurviveALostRun(t *testing.T) {
	gateCredentials(t)
	scraped := startPrometheus(t)
	s, p := newStagedScenario(t, 4, intstr.FromInt32(4)), scraped.answer(t, "0.01", hang)
	s.gate(p, 2)
	s.upgradeTo("side:v2")
	s.awaitSet("the first measurement", func(set *v1alpha1.SidecarSet) bool { return gateOf(set).Samples == 1 })
	<-p.began
	s.terminate()
	<-p.began
	gate := gateOf(s.awaitSet("the first measurement", func(set *v1alpha1.SidecarSet) bool { return gateOf(set).Samples == 1 }))
	assert.Equal(t, "0.01", gate.Measurements[0].Value)
	assert.Equal(t, 1, s.watched.View().Updated)
}

// releaseGate is a workflow of a user. releaseGate waits for the signal decide, and returns the phase in the
// signal.
func releaseGate(ctx workflow.Context, input map[string]any) (map[string]any, error) {
	var phase string
	workflow.GetSignalChannel(ctx, "decide").Receive(ctx, &phase)
	return map[string]any{"phase": phase, "message": fmt.Sprint(input["sidecarSet"], " ", input["pods"])}, nil
}

func TestSpec11_14_AWorkflowDecidesAboutTheNextStep(t *testing.T) {
	t.Parallel()
	releases := worker.New(stack.temporal, "releases", worker.Options{})
	releases.RegisterWorkflowWithOptions(releaseGate, workflow.RegisterOptions{Name: "ReleaseGate"})
	require.NoError(t, releases.Start())
	t.Cleanup(releases.Stop)
	s := newRollbackScenario(t, 4)
	s.patchPolicy(`{"gates":[{"name":"release","workflow":{"type":"ReleaseGate","taskQueue":"releases","interval":"1s"}}],"steps":[{"name":"canary","upTo":1,"gates":["release"]}]}`)
	decide := func(attempt int, phase string) {
		s.t.Helper()
		set := s.awaitSet("the workflow of the gate", func(set *v1alpha1.SidecarSet) bool {
			return set.Status.Rollout.Stage != nil && int(set.Status.Rollout.Stage.GateAttempt) == attempt && strings.HasSuffix(gateOf(set).Message, " is running")
		})
		id := strings.Fields(gateOf(set).Message)[1]
		require.NoError(s.t, stack.temporal.SignalWorkflow(s.ctx, id, "", "decide", phase))
	}
	s.upgradeTo("side:v2")
	decide(0, "Inconclusive")
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonGateInconclusive), "gate release of step 1 of 2 (canary) is inconclusive: "+s.name+" 1")
	s.signal(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	decide(1, "Success")
	s.await(observer.Converged(4))
	s.awaitGood()

	s.upgradeTo("side:v3")
	decide(0, "Failure")
	s.watched.Expect("side:v2")
	s.awaitReason(v1alpha1.ReasonQuarantined)
	s.await(observer.Converged(4))
	assert.Equal(t, 1, s.watched.Asked("side:v3"))
	_, err := s.requestStep(protocol.RetryUpdate, 0)
	require.NoError(t, err)
	s.watched.Expect("side:v3")
	decide(0, "Success")
	s.await(observer.Converged(4))
	s.within(2)
}

// A policy that was stored while the webhook did not run may be invalid. The step of such a policy does not
// start, and the policy can be corrected.
func TestSpec11_1_APolicyThatNoRunCouldFollowIsRejected(t *testing.T) {
	const invalid = `{"spec":{"gates":[{"name":"errors","prometheus":{"address":"http://prometheus","query":"errors","success":"values < 1.0"}}],"steps":[{"name":"canary","upTo":1,"gates":["errors"]}]}}`
	s := newStagedScenario(t, 2, intstr.FromInt32(2))
	patch := func(text string) error {
		policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		return stack.kube.Patch(s.ctx, policy, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	err := patch(invalid)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, `RolloutPolicy.outrigger.io "`+s.name+`" is invalid: spec.gates[errors].prometheus.success: Invalid value: "values < 1.0": `)
	require.ErrorContains(t, patch(`{"spec":{"windows":[{"schedule":"0 9 * * *","duration":"1h","timeZone":"Europe/Brlin"}]}}`), "timeZone: unknown time zone Europe/Brlin; correct the window")

	require.NoError(t, stack.Stop("webhook"))
	stored := patch(invalid)
	require.NoError(t, stack.StartAgain(s.ctx, "webhook"))
	require.NoError(t, stored, "without the webhook, a policy can be changed")
	s.upgradeTo("side:v2")
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonRolloutFailing), "RolloutPolicy "+s.name+`: gate errors: prometheus.success "values < 1.0": `)
	require.NoError(t, patch(`{"spec":{"matchingPrecedence":7}}`))
	require.NoError(t, patch(`{"spec":{"gates":null,"steps":null}}`))
	s.await(observer.Converged(2))
}
