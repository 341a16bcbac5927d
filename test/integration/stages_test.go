package integration

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// newStagedScenario creates a scenario, and a RolloutPolicy that selects only the SidecarSet of the scenario.
func newStagedScenario(t *testing.T, n int32, maxUnavailable intstr.IntOrString, steps ...outriggerv1.RolloutStep) *scenario {
	t.Helper()
	return newNamedStagedScenario(t, scenarioName(t), n, maxUnavailable, steps...)
}

// newNamedStagedScenario creates a scenario like newStagedScenario, for tests with several scenarios.
func newNamedStagedScenario(t *testing.T, name string, n int32, maxUnavailable intstr.IntOrString, steps ...outriggerv1.RolloutStep) *scenario {
	t.Helper()
	s := newNamedScenario(t, name, n, nil, func(set *v1alpha1.SidecarSet) {
		set.Labels = map[string]string{"rollout": set.Name}
		set.Spec.UpdateStrategy.MaxUnavailable = &maxUnavailable
	})
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	policy.Spec = outriggerv1.RolloutPolicySpec{Selector: metav1.LabelSelector{MatchLabels: s.set.Labels}, Steps: steps}
	require.NoError(t, stack.kube.Create(s.ctx, policy))
	t.Cleanup(func() { require.NoError(t, stack.kube.Delete(context.WithoutCancel(s.ctx), policy)) })
	return s
}

func bakes(upTo intstr.IntOrString, bake time.Duration) outriggerv1.RolloutStep {
	return outriggerv1.RolloutStep{UpTo: upTo, Bake: &metav1.Duration{Duration: bake}}
}

// awaitReason waits until Progressing has the reason, and returns the message of the condition.
func (s *scenario) awaitReason(reason string) (message string) {
	s.t.Helper()
	s.awaitSet("reason "+reason, func(set *v1alpha1.SidecarSet) bool {
		progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
		if progressing == nil || progressing.Reason != reason || progressing.ObservedGeneration != set.Generation {
			return false
		}
		message = progressing.Message
		return true
	})
	return message
}

// requestStep sends an approval, a promotion or an abort as an update.
func (s *scenario) requestStep(update string, step int) (protocol.StepResult, error) {
	s.t.Helper()
	return s.request(update, protocol.StepRequest{Approval: protocol.Approval{By: "ann"}, Generation: s.set.Generation, Step: step})
}

func (s *scenario) request(update string, request protocol.StepRequest) (protocol.StepResult, error) {
	s.t.Helper()
	var result protocol.StepResult
	handle, err := stack.temporal.UpdateWorkflow(s.ctx, sdk.UpdateWorkflowOptions{
		WorkflowID: s.workflow(), UpdateName: update, WaitForStage: sdk.WorkflowUpdateStageCompleted,
		Args: []any{request},
	})
	if err != nil {
		return result, err
	}
	return result, handle.Get(s.ctx, &result)
}

func TestSpec11_StepsBakeAndWaitForApproval(t *testing.T) {
	t.Parallel()
	canary := bakes(intstr.FromInt32(1), 20*time.Second)
	canary.Name = "canary"
	s := newStagedScenario(t, 20, intstr.FromString("50%"), canary,
		outriggerv1.RolloutStep{UpTo: intstr.FromString("25%"), Approval: &outriggerv1.StepApproval{}})
	s.upgradeTo("side:v2")
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonBaking), "step 1 of 2 (canary) bakes until ")
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonAwaitingApproval), "step 2 of 2 waits for approval; 5 of 20 pods updated")
	assert.Equal(t, 5, s.watched.View().Updated)
	set := s.awaitSet("the stage in status", func(set *v1alpha1.SidecarSet) bool { return set.Status.Rollout.Stage.ReachedAt != nil })
	assert.Equal(t, s.name, set.Status.Rollout.Policy)
	assert.Equal(t, []int32{2, 2}, []int32{set.Status.Rollout.Stage.Step, set.Status.Rollout.Stage.Steps})

	_, err := s.requestStep(protocol.ApproveUpdate, 0)
	require.ErrorContains(t, err, "the request is for step 1, and the current step is step 2 of 2")
	result, err := s.requestStep(protocol.ApproveUpdate, 1)
	require.NoError(t, err)
	assert.Equal(t, "step 2 of 2 is approved", result.Message)
	s.await(observer.Converged(20))
	s.awaitSet("the end", func(set *v1alpha1.SidecarSet) bool { return counts(20)(set) && set.Status.Rollout.Stage.Done })
	asked, _ := s.watched.Updates()
	assert.GreaterOrEqual(t, asked[1].At.Sub(asked[0].At), 20*time.Second, "a pod was upgraded during the bake time")
	s.within(10)
}

func TestSpec11_ANewGenerationStartsFromTheFirstStep(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 6, intstr.FromInt32(6), bakes(intstr.FromInt32(2), time.Hour))
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	s.upgradeTo("side:v3")
	s.awaitReason(v1alpha1.ReasonBaking)
	assert.Equal(t, 2, s.watched.View().Updated)
	result, err := s.requestStep(protocol.PromoteUpdate, 0)
	require.NoError(t, err)
	assert.Equal(t, "step 1 of 1 ended; the rollout upgrades all remaining pods within the other limits of the policy", result.Message)
	s.await(observer.Converged(6))
}

// If a run is lost during a bake time, the next run continues with the remaining bake time from the status.
func TestSpec11_4_ALostRunContinuesInItsStep(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 6, intstr.FromInt32(6), bakes(intstr.FromInt32(1), 15*time.Second), bakes(intstr.FromInt32(2), time.Hour))
	s.upgradeTo("side:v2")
	s.awaitReason(v1alpha1.ReasonBaking)
	s.terminate()
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	s.awaitSet("the second step", func(set *v1alpha1.SidecarSet) bool {
		return set.Status.Rollout.Stage.Step == 2 && set.Status.Rollout.Stage.ReachedAt != nil
	})
	s.terminate()
	asked, _ := s.watched.Updates()
	assert.GreaterOrEqual(t, asked[1].At.Sub(asked[0].At), 15*time.Second)
	s.awaitPhase(protocol.PhaseBaking)
	assert.Equal(t, 2, s.watched.View().Updated)
}

// The test kills every process during every bake time.
func TestSpec11_3_BakeTimesSurviveTheDeathOfEverything(t *testing.T) {
	const bake = 20 * time.Second
	s := newStagedScenario(t, 200, intstr.FromInt32(20), bakes(intstr.FromInt32(1), bake), bakes(intstr.FromString("5%"), bake), bakes(intstr.FromString("25%"), bake))
	s.upgradeTo("side:v2")
	for step, pods := range []int{1, 10, 50} {
		s.awaitSet("the bake time", func(set *v1alpha1.SidecarSet) bool {
			stage := set.Status.Rollout.Stage
			return set.Status.Rollout.Generation == set.Generation && stage != nil && int(stage.Step) == step+1 && stage.ReachedAt != nil
		})
		assert.Equal(t, pods, s.watched.View().Updated)
		killed := []string{"operator", "webhook", "worker-1", "worker-2", "temporal"}
		for _, process := range killed {
			require.NoError(t, stack.Kill(process))
		}
		for i := len(killed) - 1; i >= 0; i-- {
			require.NoError(t, stack.StartAgain(s.ctx, killed[i]))
		}
	}
	s.await(observer.Converged(200))
	s.awaitPhase(protocol.PhaseComplete)
	s.within(20)
	asked, served := s.watched.Updates()
	for _, pods := range []int{1, 10, 50} {
		reached := served[pods-1].At
		assert.GreaterOrEqual(t, asked[pods].At.Sub(reached), bake-time.Second, "the pod after the first %d was upgraded during the bake time", pods)
		t.Logf("step of %d pods: the next step began %v after the bake time", pods, asked[pods].At.Sub(reached)-bake)
	}
}

func TestSpec11_8_NoUpgradeStartsOutsideTheWindows(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 4, intstr.FromInt32(4))
	month := (time.Now().UTC().Month()+5)%12 + 1
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	windows := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"windows":[{"schedule":"0 0 1 %d *","duration":"1h"}]}}`, month))
	require.NoError(t, stack.kube.Patch(s.ctx, policy, windows))
	s.upgradeTo("side:v2")
	status := s.awaitPhase(protocol.PhaseFrozen)
	assert.Contains(t, status.Message, "outside the windows of RolloutPolicy "+s.name+" until ")
	assert.Zero(t, s.watched.View().Updated)
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonOutsideWindow), "outside the windows of RolloutPolicy "+s.name)
	_, err := s.requestStep(protocol.PromoteUpdate, 0)
	require.NoError(t, err)
	s.awaitSet("the promotion", func(set *v1alpha1.SidecarSet) bool { return set.Status.Rollout.Stage.Step == 2 })
	assert.Equal(t, protocol.PhaseFrozen, s.awaitPhase(protocol.PhaseFrozen).Phase, "the windows apply after the last step")
	assert.Zero(t, s.watched.View().Updated)
	_, err = s.request(protocol.PromoteUpdate, protocol.StepRequest{Generation: s.set.Generation, Step: 1, Full: true})
	require.NoError(t, err)
	s.await(observer.Converged(4))
}

func TestSpec11_9_OnePodOfEachOwnerAtATime(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 0, intstr.FromString("100%"))
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	require.NoError(t, stack.kube.Patch(s.ctx, policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxUnavailablePerOwner":1}}`))))
	const workloads, each = 6, 3
	for i := range workloads {
		workload := deployment(s.name, each)
		workload.Name = fmt.Sprint("app-", i)
		workload.Spec.Template.Labels["owner"], workload.Spec.Selector.MatchLabels["owner"] = workload.Name, workload.Name
		require.NoError(t, stack.kube.Create(s.ctx, workload))
	}
	s.await(observer.Converged(workloads * each))
	s.upgradeTo("side:v2")
	s.await(observer.Converged(workloads * each))
	asked, served := s.watched.Updates()
	times := func(updates []observer.Update) map[string][]time.Time {
		byOwner := map[string][]time.Time{}
		for _, update := range updates {
			byOwner[update.Labels["owner"]] = append(byOwner[update.Labels["owner"]], update.At)
		}
		return byOwner
	}
	begins, ends := times(asked), times(served)
	require.Len(t, begins, workloads)
	for owner, at := range begins {
		for i := 1; i < each; i++ {
			assert.False(t, at[i].Before(ends[owner][i-1]), "pod %d of %s was upgraded before pod %d served", i, owner, i-1)
		}
	}
}

func TestSpec11_1_InvalidPoliciesAreRejected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*outriggerv1.RolloutPolicy)
		says   string
	}{
		"a percentage above 100": {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].UpTo = intstr.FromString("101%") }, "upTo is a number of pods of at least 1, or a percentage from 1% to 100%"},
		"a negative number":      {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].UpTo = intstr.FromInt32(-1) }, "upTo is a number of pods of at least 1"},
		"a negative bake time":   {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].Bake.Duration = -time.Second }, "bake is a positive duration such as 10m"},
		"a schedule of six fields": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 0 9 * * 1-5", Duration: metav1.Duration{Duration: time.Hour}}}
		}, `schedule is a cron expression of five fields such as "0 9 * * 1-5"`},
		"a schedule with an impossible minute": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "60 9 * * 1-5", Duration: metav1.Duration{Duration: time.Hour}}}
		}, `schedule is a cron expression of five fields such as "0 9 * * 1-5": minute, hour`},
		"a window without a duration": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 9 * * 1-5"}}
		}, "duration is a positive duration in hours, minutes and seconds, such as 8h"},
		"two steps of one name": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Steps = append(p.Spec.Steps, p.Spec.Steps[0])
			p.Spec.Steps[0].Name, p.Spec.Steps[1].Name = "a", "a"
		}, "the names of steps must differ"},
		"domains without a label": {func(p *outriggerv1.RolloutPolicy) { p.Spec.Domains = &outriggerv1.RolloutDomains{} }, "topologyKey is a label of nodes such as topology.kubernetes.io/zone"},
		"domains with an invalid label": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Domains = &outriggerv1.RolloutDomains{TopologyKey: "zone/"}
		}, "topologyKey is a label of nodes such as topology.kubernetes.io/zone"},
		"no domain": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Domains = &outriggerv1.RolloutDomains{TopologyKey: "zone", MaxUnavailableDomains: -1}
		}, "spec.domains.maxUnavailableDomains"},
		"an unknown gate": {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].Gates = []string{"errors"} }, "gate errors of a step is not in spec.gates: add the gate, or remove its name from the step"},
		"a gate without a kind": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors"}}
		}, "a gate must have exactly one of prometheus, webhook and workflow"},
		"a gate with credentials in its address": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Webhook: &outriggerv1.WebhookGate{URL: "http://ann:secret@checks"}}}
		}, "url must not have a user or a password: put them into a Secret, and name the Secret in credentials"},
		"an address without a scheme": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Query: "up", Success: "value > 0", Address: "prometheus:9090"}}}
		}, "address begins with http:// or https://, such as http://prometheus.monitoring:9090"},
		"an address with a query": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Query: "up", Success: "value > 0", Address: "http://prometheus:9090/?a=b"}}}
		}, "address must not have a query or a fragment: remove the part that begins with ? or #"},
		"an address with a fragment": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Query: "up", Success: "value > 0", Address: "http://prometheus:9090/#a"}}}
		}, "address must not have a query or a fragment: remove the part that begins with ? or #"},
		"an address with a space": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Query: "up", Success: "value > 0", Address: "http://prometheus:9090/a b"}}}
		}, "address is an absolute URL without spaces"},
		"an address with an impossible port": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Query: "up", Success: "value > 0", Address: "http://prometheus:port"}}}
		}, "address is an absolute URL without spaces"},
		"a url with a fragment": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Gates = []outriggerv1.RolloutGate{{Name: "errors", Webhook: &outriggerv1.WebhookGate{URL: "http://checks/#a"}}}
		}, "url must not have a fragment: remove the part that begins with #"},
		"no pods":    {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].UpTo = intstr.FromInt32(0) }, "upTo is a number of pods of at least 1"},
		"no percent": {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].UpTo = intstr.FromString("0%") }, "or a percentage from 1% to 100%"},
		"fewer pods than before": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Steps = []outriggerv1.RolloutStep{bakes(intstr.FromString("20%"), time.Second), bakes(intstr.FromInt32(10), time.Second), bakes(intstr.FromInt32(9), time.Second)}
		}, "upTo of step 3 must not be less than upTo of the step before, because it includes the pods of earlier steps"},
		"a smaller percentage than before": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Steps = []outriggerv1.RolloutStep{bakes(intstr.FromString("20%"), time.Second), bakes(intstr.FromString("9%"), time.Second)}
		}, "upTo of step 2 must not be less than upTo of the step before, because it includes the pods of earlier steps"},
		"no bake time":         {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].Bake.Duration = 0 }, "bake is a positive duration such as 10m; without a bake time, leave it out"},
		"a name in upper case": {func(p *outriggerv1.RolloutPolicy) { p.Spec.Steps[0].Name = "Canary" }, "name consists of lower-case letters, digits and hyphens"},
		"a time zone without a name": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 9 * * 1-5", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "+01:00"}}
		}, "timeZone is a name of the time zone database, such as Europe/Berlin"},
		"two gates of one name": {func(p *outriggerv1.RolloutPolicy) {
			gate := outriggerv1.RolloutGate{Name: "errors", Webhook: &outriggerv1.WebhookGate{URL: "http://checks"}}
			p.Spec.Gates = []outriggerv1.RolloutGate{gate, gate}
		}, `spec.gates[1]: Duplicate value: {"name":"errors"}`},
		"a gate with two kinds": {func(p *outriggerv1.RolloutPolicy) {
			gate := outriggerv1.RolloutGate{Name: "errors", Webhook: &outriggerv1.WebhookGate{URL: "http://checks"}, Workflow: &outriggerv1.WorkflowGate{Type: "t", TaskQueue: "q"}}
			p.Spec.Gates = []outriggerv1.RolloutGate{gate}
		}, "a gate must have exactly one of prometheus, webhook and workflow"},
		"a deadline of no time": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Failure = &outriggerv1.RolloutFailure{ProgressDeadline: &metav1.Duration{}}
		}, "progressDeadline is a positive duration such as 30m"},
		"a negative time to become ready": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Failure = &outriggerv1.RolloutFailure{UnreadyFor: &metav1.Duration{Duration: -time.Second}}
		}, "unreadyFor is a positive duration such as 5m"},
		"an unknown operator": {func(p *outriggerv1.RolloutPolicy) {
			p.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}
		}, "the operators In and NotIn need values"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}}
			policy.Spec.Selector.MatchLabels = map[string]string{"rollout": "none"}
			policy.Spec.Steps = []outriggerv1.RolloutStep{bakes(intstr.FromInt32(1), time.Second)}
			c.change(policy)
			err := stack.kube.Create(t.Context(), policy)
			if err == nil {
				require.NoError(t, stack.kube.Delete(t.Context(), policy, client.GracePeriodSeconds(0)))
			}
			require.ErrorContains(t, err, c.says)
			assert.NotContains(t, err.Error(), "should match", "a regular expression is no remedy")
		})
	}
}

// The longest valid policy must be within the cost limit of the API server for validation rules.
func TestSpec11_1_ValidPoliciesAreAccepted(t *testing.T) {
	t.Parallel()
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "valid"}}
	policy.Spec.Selector.MatchLabels = map[string]string{"rollout": "none"}
	for i := range 50 {
		upTo := intstr.FromInt32(int32(10 * (i + 1)))
		if i >= 25 {
			upTo = intstr.FromString(strconv.Itoa(2*(i+1)) + "%")
		}
		policy.Spec.Steps = append(policy.Spec.Steps, outriggerv1.RolloutStep{Name: "step-" + strconv.Itoa(i), UpTo: upTo, Bake: &metav1.Duration{Duration: 90 * time.Minute}})
	}
	for i, zone := range []string{"", "UTC", "Europe/Berlin", "Etc/GMT+3"} {
		policy.Spec.Windows = append(policy.Spec.Windows, outriggerv1.RolloutWindow{Schedule: "*/15,07 0-23/2 ? Jan,2-12 MON-fri,0", Duration: metav1.Duration{Duration: time.Hour + 500*time.Millisecond}, TimeZone: zone})
		policy.Spec.Gates = append(policy.Spec.Gates, outriggerv1.RolloutGate{Name: "gate-" + strconv.Itoa(i), Webhook: &outriggerv1.WebhookGate{URL: "https://checks.example.com:8443/a?b=c"}})
	}
	policy.Spec.Gates = append(policy.Spec.Gates, outriggerv1.RolloutGate{Name: "prometheus", Prometheus: &outriggerv1.PrometheusGate{Address: "http://[::1]:9090/prefix", Query: "up", Success: "value > 0"}})
	require.NoError(t, stack.kube.Create(t.Context(), policy, client.DryRunAll))
}

func TestSpec11_6_FailedPodsPauseTheRollout(t *testing.T) {
	t.Parallel()
	s := newStagedScenario(t, 10, intstr.FromInt32(2))
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	limit := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"failure":{"maxFailedPods":0}}}`))
	require.NoError(t, stack.kube.Patch(s.ctx, policy, limit))
	s.upgradeTo("side:bad")
	set := s.awaitSet("the pause of the policy", func(set *v1alpha1.SidecarSet) bool {
		return set.Status.Rollout.Pause != nil && set.Status.Rollout.Stage != nil
	})
	assert.Equal(t, "RolloutPolicy "+s.name, set.Status.Rollout.Pause.By)
	assert.Regexp(t, `^[12] pods? failed after the upgrade, and 0 are allowed, such as .* \(container side: ImagePullBackOff, image side:bad\)$`, set.Status.Rollout.Pause.Reason)
	assert.LessOrEqual(t, s.watched.View().Updated, 2)
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonPaused), "paused by RolloutPolicy "+s.name+": ")

	// The pause also applies to a new generation, like every pause.
	s.upgradeTo("side:v3")
	s.awaitPhase(protocol.PhasePaused)
	s.signal(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.await(observer.Converged(10))
	s.within(2)
}
