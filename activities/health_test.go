package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
)

func TestSpec11_6_APodThatIsNotReadyFailsAfterTheTimeOfTheStep(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a", upgraded, upgradedInPlace, notReady), webPod("b"))
	step := &protocol.Step{UpTo: intstr.FromString("100%"), MaxFailed: new(intstr.FromInt32(0)), UnreadyFor: 90 * time.Second, ProgressDeadline: time.Hour}
	input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true, SkipTrueConditions: true, Stage: &protocol.Stage{Generation: 2, Policy: "edge", Steps: 1, Step: step}}
	plan := func() protocol.NextBatchResult {
		result, _, err := cluster.newNextBatch(input).check(t.Context())
		require.NoError(t, err)
		return result
	}
	result := plan()
	assert.Equal(t, maxHealthWait, result.Again, "another worker may make the next plan")
	assert.True(t, result.ProgressDue)
	assert.Nil(t, result.Failure)

	cluster.clock.Step(time.Minute)
	assert.Equal(t, 30*time.Second, plan().Again)
	cluster.clock.Step(30 * time.Second)
	assert.Equal(t, &protocol.Failure{Pods: 1, Reason: "1 pod failed after the upgrade, and 0 are allowed, such as d/a (not ready for 1m30s)"}, plan().Failure)

	again := *input.Stage
	again.Retried = cluster.clock.Now()
	retry := protocol.NextBatchInput{SidecarSet: input.SidecarSet, Generation: 2, Stages: true, SkipTrueConditions: true, Stage: &again}
	result, _, err := cluster.newNextBatch(retry).check(t.Context())
	require.NoError(t, err)
	assert.Nil(t, result.Failure, "a retry begins the time again")
	cluster.clock.Step(90 * time.Second)
	assert.Nil(t, plan().Failure, "the observations belong to one attempt")
	cluster.clock.Step(90 * time.Second)
	assert.NotNil(t, plan().Failure)

	b := cluster.batchOf("b")
	b.input.Stage = input.Stage
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.True(t, b.result().Failing)

	input.Stages = false
	result = plan()
	assert.Zero(t, result.Again)
	assert.False(t, result.ProgressDue)
}

func TestSpec11_6_AnOverdueRunFailsUnlessItIsFrozen(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a", upgraded, upgradedInPlace, notReady), webPod("b"))
	step := &protocol.Step{UpTo: intstr.FromString("100%"), MaxFailed: new(intstr.FromInt32(0)), ProgressDeadline: 30 * time.Minute}
	input := protocol.NextBatchInput{
		SidecarSet: webSetReference, Generation: 2, Stages: true, SkipTrueConditions: true, Overdue: &protocol.Stall{},
		Stage: &protocol.Stage{Generation: 2, Policy: "edge", Steps: 1, Step: step},
	}
	next := cluster.newNextBatch(input)
	cluster.clock.Step(time.Second)
	result, again, err := next.check(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again)
	require.NotNil(t, result.Failure)
	assert.True(t, result.Failure.Overdue)
	assert.Contains(t, result.Failure.Reason, "upgraded pods that are not ready: 1, such as d/a")
	assert.Equal(t, time.Second, result.Took)

	step.Windows = []protocol.Window{{Schedule: "0 1 * * *", Duration: time.Hour}}
	result, _, err = cluster.newNextBatch(input).check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseFrozen, result.Phase)
	assert.Nil(t, result.Failure)
	assert.False(t, result.ProgressDue)
}
