package operator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
)

// reported returns the Lease of a rollout. id is the value that the worker wrote when the stage changed, or
// "".
func reported(name, id string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if id != "" {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.StageChangedAnnotation, id)
	}
	return lease
}

func TestSpec11_12_AReportedStageRequeuesItsSidecarSet(t *testing.T) {
	changes := newRunChanges()
	events := changes.leaseEvents()
	events.OnAdd(reported("outrigger-rollout-initial", "1"), true)
	events.OnAdd(reported("outrigger-rollout-new", ""), false)
	events.OnAdd(reported("outrigger-operator", "1"), false)
	events.OnUpdate(reported("outrigger-rollout-same", "1"), reported("outrigger-rollout-same", "1"))
	assert.Empty(t, changes.requeues)
	events.OnAdd(reported("outrigger-rollout-added", "1"), false)
	events.OnUpdate(reported("outrigger-rollout-logs", "1"), reported("outrigger-rollout-logs", "2"))
	assert.Equal(t, "added", (<-changes.requeues).Object.GetName())
	assert.Equal(t, "logs", (<-changes.requeues).Object.GetName())
	assert.True(t, changes.take("logs"))
	assert.False(t, changes.take("logs"), "one event lets the operator read the run once")
}

// The clock does not advance, so the next periodic check of the run is never due.
func TestSpec11_12_AReportedStageIsReadBeforeTheNextCheck(t *testing.T) {
	set := named("logs")
	e := newSlowEnv(t, set)
	e.slowTemporal.run = &workflow.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING}
	e.observe(t, set.Name)
	described := e.described
	e.observe(t, set.Name)
	assert.Equal(t, described, e.described, "the next check of the run is not due")
	e.changes.add(set.Name)
	e.observe(t, set.Name)
	assert.Equal(t, described+1, e.described)
}

// A user may abort or resume a rollout whose pods have all converged.
func TestSpec11_4_AReportedStageOfAFinishedRolloutIsReadAtOnce(t *testing.T) {
	set := named("logs")
	e := newSlowEnv(t, set)
	e.slowTemporal.run = &workflow.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING}
	set, _ = e.observe(t, set.Name) // The first pass starts the run.
	finish := func() int {
		p := &pass{before: set.DeepCopy(), set: set.DeepCopy(), now: e.clock.Now()}
		p.plan = plan(protocol.PhaseComplete, protocol.Counts{Matched: 2, Updated: 2, UpdatedReady: 2})
		require.NoError(t, e.reconcile(t.Context(), p))
		return e.described
	}
	first := finish()
	assert.Equal(t, first, finish(), "the next check of the run is not due")
	e.changes.add(set.Name)
	assert.Equal(t, first+1, finish())
}

func TestSpec11_3_TheEndOfABakeTimeRequeuesTheSidecarSet(t *testing.T) {
	now := time.Unix(1000, 0)
	set := &v1alpha1.SidecarSet{}
	set.Status.Rollout = &v1alpha1.RolloutStatus{}
	stage.ToStatus(set, &protocol.Stage{Steps: 2, Step: &protocol.Step{UpTo: intstr.FromInt32(1), Bake: time.Minute}, Reached: &now})
	p := &pass{set: set, now: now.Add(58 * time.Second)}
	p.result.RequeueAfter = pausedCheckInterval
	assert.Equal(t, pausedCheckInterval, p.requeue().RequeueAfter, "the step is not reached")
	p.plan.Phase = protocol.PhaseStepReached
	assert.Equal(t, 2*time.Second, p.requeue().RequeueAfter)
	p.now, p.result.RequeueAfter = now.Add(time.Minute), pausedCheckInterval
	assert.Equal(t, pausedCheckInterval, p.requeue().RequeueAfter, "the bake time has ended")
}

// statusAnswer is the answer of a run to the status query.
type statusAnswer struct {
	converter.EncodedValue
	status protocol.RolloutStatus
}

func (a statusAnswer) Get(into any) error {
	*into.(*protocol.RolloutStatus) = a.status
	return nil
}

func (c slowClient) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	c.service.queried++
	return statusAnswer{status: c.service.answer}, nil
}

func TestSpec8_ProgressingNamesTheDomainThatTheRunWaitsFor(t *testing.T) {
	set := named("logs")
	for name, c := range map[string]struct {
		phase   protocol.Phase
		step    protocol.Step
		queried int
		waits   string
	}{
		"a domain":           {protocol.PhaseWaiting, protocol.Step{Domains: &protocol.Domains{TopologyKey: "zone", MaxUnavailable: 1}}, 1, "web-1 waits for domain b"},
		"a budget":           {protocol.PhaseWaiting, protocol.Step{RespectBudgets: true}, 1, "web-1 waits for domain b"},
		"no limit":           {protocol.PhaseWaiting, protocol.Step{}, 0, ""},
		"the run does plan":  {protocol.PhaseProgressing, protocol.Step{RespectBudgets: true}, 0, ""},
		"it waits no longer": {protocol.PhaseWaiting, protocol.Step{RespectBudgets: true}, 1, ""},
	} {
		e := newSlowEnv(t, set)
		e.answer = protocol.RolloutStatus{Phase: protocol.PhaseWaiting, Generation: set.Generation, Message: "web-1 waits for domain b"}
		if name == "it waits no longer" {
			e.answer.Phase = protocol.PhaseProgressing
		}
		p := &pass{set: set, state: &runState{waits: "earlier"}, run: &runs.Run{Phase: c.phase, Stage: &protocol.Stage{Step: &c.step}}}
		e.readWait(t.Context(), p)
		assert.Equal(t, c.queried, e.queried, name)
		assert.Equal(t, c.waits, p.state.waits, name)
		p.plan, p.out.waits = plan(protocol.PhaseProgressing, protocol.Counts{Remaining: 1}), p.state.waits
		if c.waits != "" {
			assert.Equal(t, yes(v1alpha1.ReasonWaitingForPods, c.waits), progressOf(p), name)
		} else {
			assert.Equal(t, v1alpha1.ReasonRolloutProgress, progressOf(p).reason, name)
		}
	}
}

func TestSpec12_9_AwaitingPermitNamesTheFaultOfTheConnection(t *testing.T) {
	set, fault := named("logs"), "the namespace does not exist (create it)"
	for name, c := range map[string]struct {
		frozenReason string
		answer       protocol.RolloutStatus
		want         string
	}{
		"a fault":            {v1alpha1.ReasonAwaitingPermit, protocol.RolloutStatus{Generation: set.Generation, Message: "earlier counts", FleetFault: fault}, fault},
		"it is over":         {v1alpha1.ReasonAwaitingPermit, protocol.RolloutStatus{Generation: set.Generation, Message: "earlier counts"}, ""},
		"another generation": {v1alpha1.ReasonAwaitingPermit, protocol.RolloutStatus{Generation: set.Generation - 1, FleetFault: fault}, "earlier"},
		"a freeze":           {v1alpha1.ReasonFrozen, protocol.RolloutStatus{}, "earlier"},
	} {
		e := newSlowEnv(t, set)
		e.answer = c.answer
		p := &pass{set: set, state: &runState{fleetFault: "earlier"}, run: &runs.Run{Phase: protocol.PhaseFrozen}}
		p.plan, p.frozenReason = plan(protocol.PhaseFrozen, protocol.Counts{Remaining: 1}), c.frozenReason
		p.plan.Message = fleet.AwaitingPermit + "; counts"
		e.readWait(t.Context(), p)
		p.out.fleetFault = p.state.fleetFault
		assert.Equal(t, c.want, p.out.fleetFault, name)
		switch {
		case c.frozenReason != v1alpha1.ReasonAwaitingPermit, c.want == "":
			assert.Equal(t, no(c.frozenReason, p.plan.Message), progressing(p), name)
		default:
			assert.Equal(t, no(c.frozenReason, fleet.AwaitingPermit+"; the connection to the fleet fails: "+c.want+"; counts"), progressing(p), name)
		}
	}

	paused := &pass{set: set, run: &runs.Run{}}
	paused.plan, paused.frozenReason, paused.pause = plan(protocol.PhaseFrozen, protocol.Counts{}), v1alpha1.ReasonAwaitingPermit, &v1alpha1.RolloutPause{By: "ann"}
	assert.Equal(t, v1alpha1.ReasonPaused, progressing(paused).reason, "a pause delays the end of a rollout, too")
}
