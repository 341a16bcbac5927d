package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator/runs"
)

func moving(updated int) *observation {
	return &observation{plan: rollout.Plan{
		Phase: protocol.PhaseProgressing, MaxUnavailable: 3,
		Counts: protocol.Counts{Matched: 10, Ready: 9, Updated: updated, Remaining: 10 - updated, Unavailable: 1},
	}}
}

func TestRolloutMetricsAreTotalsOverSets(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newRolloutMetrics(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	require.NoError(t, registry.Register(m))
	one, two := fixture.SidecarSet("one"), fixture.SidecarSet("two")
	faulted := moving(5)
	faulted.fault.Reason = v1alpha1.ReasonWorkerUnavailable
	paused := moving(2)
	paused.pause, paused.broken.Count = &v1alpha1.RolloutPause{}, 2
	m.observe(one, faulted)
	m.observe(two, paused)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP outrigger_rollouts_paused SidecarSets whose run is paused by signal.
# TYPE outrigger_rollouts_paused gauge
outrigger_rollouts_paused 1
# HELP outrigger_rollouts_held Former name of outrigger_rollouts_paused; a later release removes this name.
# TYPE outrigger_rollouts_held gauge
outrigger_rollouts_held 1
# HELP outrigger_rollouts SidecarSets by the phase of their rollout (SPEC §8).
# TYPE outrigger_rollouts gauge
outrigger_rollouts{phase="Complete"} 0
outrigger_rollouts{phase="Frozen"} 0
outrigger_rollouts{phase="NotUpdate"} 0
outrigger_rollouts{phase="PartitionReached"} 0
outrigger_rollouts{phase="Paused"} 0
outrigger_rollouts{phase="Progressing"} 2
outrigger_rollouts{phase="Quarantined"} 0
outrigger_rollouts{phase="StepReached"} 0
outrigger_rollouts{phase="Waiting"} 0
# HELP outrigger_rollouts_faulted SidecarSets whose run makes no progress because of the workers or a missing payload key, by the reason of Degraded.
# TYPE outrigger_rollouts_faulted gauge
outrigger_rollouts_faulted{reason="RolloutFailing"} 0
outrigger_rollouts_faulted{reason="RunUnreadable"} 0
outrigger_rollouts_faulted{reason="WorkerUnavailable"} 1
# HELP outrigger_rollout_max_unavailable_pods Pods that all rollouts in progress together may make unavailable at once.
# TYPE outrigger_rollout_max_unavailable_pods gauge
outrigger_rollout_max_unavailable_pods 3
# HELP outrigger_rollout_pods Pods of all SidecarSets, by state. A pod of two SidecarSets counts twice. Pods in state in_flight are unavailable because of an upgrade. Pods in state broken have a sidecar that cannot start.
# TYPE outrigger_rollout_pods gauge
outrigger_rollout_pods{state="broken"} 2
outrigger_rollout_pods{state="in_flight"} 2
outrigger_rollout_pods{state="matched"} 20
outrigger_rollout_pods{state="not_upgradable"} 0
outrigger_rollout_pods{state="ready"} 18
outrigger_rollout_pods{state="remaining"} 13
outrigger_rollout_pods{state="updated"} 7
outrigger_rollout_pods{state="updated_ready"} 0
`), "outrigger_rollouts", "outrigger_rollouts_paused", "outrigger_rollouts_held", "outrigger_rollouts_faulted", "outrigger_rollout_max_unavailable_pods", "outrigger_rollout_pods"))

	m.forget("one")
	m.forget("two")
	assert.Zero(t, m.totals().counts)
}

func TestAStalledRolloutIsOneWhoseCountsStayWhileItIsToMove(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	m := newRolloutMetrics(clock)
	set := fixture.SidecarSet("one")
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	m.observe(set, moving(1))
	pass(time.Minute)
	m.observe(set, moving(1))
	assert.Equal(t, time.Minute, m.totals().stalled)
	started := moving(1)
	started.plan.Counts.Matched, started.plan.Counts.Ready = started.plan.Counts.Matched+1, started.plan.Counts.Ready+1
	m.observe(set, started)
	assert.Equal(t, time.Minute, m.totals().stalled, "a new pod is no progress of the rollout")
	m.observe(set, moving(2))
	assert.Zero(t, m.totals().stalled, "counts changed")
	pass(time.Minute)
	paused := moving(2)
	paused.pause = &v1alpha1.RolloutPause{}
	m.observe(set, paused)
	assert.Zero(t, m.totals().stalled, "paused")
	pass(time.Hour)
	m.observe(set, moving(2))
	assert.Zero(t, m.totals().stalled, "resumed")
}

func TestTheLongestWaitForAnApprovalIsMeasured(t *testing.T) {
	began := time.Unix(1000, 0)
	clock := clocktesting.NewFakePassiveClock(began.Add(time.Minute))
	m := newRolloutMetrics(clock)
	set := fixture.SidecarSet("one")
	upTo := intstr.FromInt32(1)
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation, Policy: "edge", Stage: &v1alpha1.RolloutStage{
		Step: 1, Steps: 2, UpTo: &upTo, Approval: true, Bake: &metav1.Duration{Duration: 2 * time.Minute}, ReachedAt: new(metav1.NewMicroTime(began)),
	}}
	reached := moving(1)
	reached.plan.Phase = protocol.PhaseStepReached
	m.observe(set, reached)
	assert.Zero(t, m.totals().approval, "bakes")
	clock.SetTime(began.Add(3 * time.Minute))
	m.observe(set, reached)
	assert.Equal(t, time.Minute, m.totals().approval)
	measured := v1alpha1.GateMeasurement{Phase: "Success", Time: metav1.NewMicroTime(began.Add(150 * time.Second))}
	set.Status.Rollout.Stage.Gates = []v1alpha1.StageGate{{Name: "errors", Definition: `{"name":"errors"}`, Phase: "Success", Measurements: []v1alpha1.GateMeasurement{measured}}}
	m.observe(set, reached)
	assert.Equal(t, 30*time.Second, m.totals().approval, "a gate does not wait for the approval")
	set.Status.Rollout.Stage.ApprovedBy = &v1alpha1.StepApproval{By: "ann"}
	m.observe(set, reached)
	assert.Zero(t, m.totals().approval, "approved")
}

func TestTheStatusOfASetIsCountedUntilItIsGone(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	metrics := newMetrics(prometheus.NewRegistry())
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	client := fake.NewClientBuilder().WithScheme(scheme).Build()
	status := &statusStep{statusWriter: &statusWriter{reported: &reports{}, client: client, writes: metrics.statusWrites}, metrics: metrics.rollouts, evicts: evictsNothing}
	r := &reconciler{limiter: newEnqueueLimiter(clock), steps: []step{status}}
	set := fixture.SidecarSet("one")
	failing := outcome{fault: runs.Fault{Reason: v1alpha1.ReasonRolloutFailing}}
	require.NoError(t, status.reconcile(t.Context(), &pass{before: set.DeepCopy(), set: set, observation: *moving(1), out: failing}))
	totals := metrics.rollouts.totals()
	assert.Equal(t, 10, totals.counts.Matched)
	assert.Equal(t, 1, totals.faults[v1alpha1.ReasonRolloutFailing])
	r.forget("one")
	assert.Zero(t, metrics.rollouts.totals().counts)

	// A finalizer keeps the SidecarSet after its deletion.
	require.NoError(t, status.reconcile(t.Context(), &pass{before: set.DeepCopy(), set: set, observation: *moving(1), out: failing}))
	require.NotZero(t, metrics.rollouts.totals().counts)
	kept := fixture.SidecarSet("one")
	kept.DeletionTimestamp, kept.Finalizers = new(metav1.Now()), []string{"example.com/wait"}
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(kept).Build()
	p, err := r.begin(t.Context(), "one")
	require.NoError(t, err)
	assert.Nil(t, p)
	assert.Zero(t, metrics.rollouts.totals().counts)
}
