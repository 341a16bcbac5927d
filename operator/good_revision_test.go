package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/operator/runs"
)

func TestSpec7_5_TheEndIsRecordedOnceTheRunHasEnded(t *testing.T) {
	set := setAt(generation)
	for name, c := range map[string]struct {
		found runs.Run
		ends  bool
		after time.Duration
	}{
		"by itself":             {runs.Run{Status: completed, Generation: generation}, true, 0},
		"open":                  {runs.Run{Status: opened, Generation: generation}, false, time.Hour / 2},
		"of another generation": {runs.Run{Status: completed, Generation: generation - 1}, true, lostRunGrace},
		"terminated":            {runs.Run{Status: terminated, Generation: generation}, true, lostRunGrace},
		"gone":                  {runs.Run{}, true, lostRunGrace},
	} {
		var state runState
		now := noon
		ended := false
		for i := 0; i < 15 && !ended; i++ {
			left, due := state.untilEndCheck(generation, true, now)
			assert.True(t, due, name)
			assert.Equal(t, i > 0, left > 0, name)
			now = now.Add(left)
			ended = state.recordEndCheck(set, &c.found, true, now)
		}
		assert.Equal(t, c.ends, ended, name)
		assert.GreaterOrEqual(t, now.Sub(noon), c.after, name)
		_, due := state.untilEndCheck(generation, false, now)
		assert.Equal(t, !c.ends, due, name)
	}
}

var noon = time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)

func TestSpec7_5_TheContentOfPodsBeforeTheFirstRolloutIsRecorded(t *testing.T) {
	serving := &observation{plan: rollout.Plan{Counts: protocol.Counts{Updated: 3}}}
	ended := &observation{plan: serving.plan, endToRecord: true}
	before := []v1alpha1.GoodRevision{{Revision: "s-0", Hash: "before", ResourceVersion: "3"}}
	hash := fixture.SidecarSet("s").Annotations[v1alpha1.HashAnnotation]
	initial := v1alpha1.GoodRevision{Revision: "s-1", Hash: hash}
	done := v1alpha1.GoodRevision{Revision: "s-1", Hash: hash, ResourceVersion: "7"}
	for name, c := range map[string]struct {
		seen    *observation
		out     outcome
		rollout *v1alpha1.RolloutStatus
		good    []v1alpha1.GoodRevision
		want    []v1alpha1.GoodRevision
	}{
		"first seen":                    {serving, outcome{}, nil, nil, []v1alpha1.GoodRevision{initial}},
		"first seen, and started":       {serving, outcome{started: true}, nil, nil, []v1alpha1.GoodRevision{initial}},
		"first seen after an edit":      {&observation{}, outcome{}, nil, nil, nil},
		"edited before it is started":   {serving, outcome{}, nil, []v1alpha1.GoodRevision{initial}, []v1alpha1.GoodRevision{initial}},
		"in mid-rollout":                {serving, outcome{}, &v1alpha1.RolloutStatus{}, nil, nil},
		"converged, the run is open":    {ended, outcome{}, &v1alpha1.RolloutStatus{}, before, before},
		"ended":                         {ended, outcome{ended: true}, &v1alpha1.RolloutStatus{}, before, []v1alpha1.GoodRevision{done, before[0]}},
		"ended, but pods changed since": {serving, outcome{ended: true}, &v1alpha1.RolloutStatus{}, before, before},
	} {
		set := fixture.SidecarSet("s")
		set.ResourceVersion, set.Status.LatestRevision = "7", "s-1"
		set.Status.Rollout, set.Status.GoodRevisions = c.rollout, c.good
		recordGoodRevision(&pass{set: set, observation: *c.seen, out: c.out})
		assert.Equal(t, c.want, set.Status.GoodRevisions, name)
	}
}

// After its upgrade, an app crashes permanently before the operator records the end of the rollout.
func TestSpec7_5_TheEndIsRecordedThoughAnAppFailsSince(t *testing.T) {
	attribute, err := converter.GetDefaultDataConverter().ToPayload(generation)
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		status enums.WorkflowExecutionStatus
		pods   int
		want   bool
	}{
		{"its run has ended", completed, 0, true},
		{"its run is open", opened, 0, false},
		{"its run was terminated", terminated, 0, false},
		{"another run was started", completed, 1, false},
	} {
		env, set := newSlowEnv(t), setAt(generation)
		env.run = &workflow.WorkflowExecutionInfo{Status: c.status, HistoryLength: 20,
			SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}}}
		seen := observation{plan: plan(protocol.PhaseWaiting, protocol.Counts{Matched: 2, Updated: 2, UpdatedReady: 1, Converging: 1}), endToRecord: true}
		seen.plan.Pods = make([]protocol.SelectedPod, c.pods)
		state := env.states.of(set)
		state.endedAt = env.clock.Now().Add(-restartGracePeriod)
		p := &pass{set: set, observation: seen, state: state, now: env.clock.Now()}
		env.reconcileRun(t.Context(), p)
		require.NoError(t, p.out.err, c.name)
		assert.Equal(t, c.want, p.out.ended, c.name)
	}
}

func TestSpec7_5_TheEndOfTheFormerGenerationIsRecordedAfterAnEdit(t *testing.T) {
	former := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "s-1", Annotations: map[string]string{v1alpha1.HashAnnotation: "former"}}}
	older := v1alpha1.GoodRevision{Revision: "s-0", Hash: "older", ResourceVersion: "3"}
	recorded := v1alpha1.GoodRevision{Revision: "s-1", Hash: "former", ResourceVersion: "1"}
	earlier := v1alpha1.GoodRevision{Revision: "s-1", Hash: "former", ResourceVersion: "2"}
	initial := v1alpha1.GoodRevision{Revision: "s-1", Hash: "former"}
	for name, c := range map[string]struct {
		change func(*pass)
		good   []v1alpha1.GoodRevision
		want   []v1alpha1.GoodRevision
	}{
		"ended":                      {nil, []v1alpha1.GoodRevision{older}, []v1alpha1.GoodRevision{recorded, older}},
		"ended, the first":           {nil, nil, []v1alpha1.GoodRevision{recorded}},
		"the partition was reached":  {func(p *pass) { p.before.Status.Conditions[0].Reason = v1alpha1.ReasonPartitionReached }, nil, []v1alpha1.GoodRevision{recorded}},
		"a pod was not upgradable":   {func(p *pass) { p.before.Status.Conditions[0].Reason = v1alpha1.ReasonNotUpgradablePods }, nil, []v1alpha1.GoodRevision{recorded}},
		"recorded already":           {nil, []v1alpha1.GoodRevision{earlier, older}, []v1alpha1.GoodRevision{earlier, older}},
		"only volumes have changed":  {nil, []v1alpha1.GoodRevision{{Revision: "s-0", Hash: "former", ResourceVersion: "2"}}, []v1alpha1.GoodRevision{earlier}},
		"recorded before another":    {nil, []v1alpha1.GoodRevision{older, earlier}, []v1alpha1.GoodRevision{earlier, older}},
		"pods had it at first":       {nil, []v1alpha1.GoodRevision{initial}, []v1alpha1.GoodRevision{recorded}},
		"in progress":                {func(p *pass) { p.before.Status.Conditions[0].Reason = v1alpha1.ReasonPaused }, []v1alpha1.GoodRevision{older}, []v1alpha1.GoodRevision{older}},
		"without a ready pod":        {func(p *pass) { p.before.Status.UpdatedReadyPods = 0 }, nil, nil},
		"the same generation":        {func(p *pass) { p.before.Status.ObservedGeneration = p.set.Generation }, nil, nil},
		"the same content":           {func(p *pass) { p.set.Annotations[v1alpha1.HashAnnotation] = "former" }, nil, nil},
		"the revision has no hash":   {func(p *pass) { p.former = &appsv1.ControllerRevision{} }, nil, nil},
		"the revision was not found": {func(p *pass) { p.former = nil }, nil, nil},
	} {
		before := fixture.SidecarSet("s")
		before.Generation = generation
		before.Status.GoodRevisions, before.Status.ObservedGeneration, before.Status.UpdatedReadyPods = c.good, generation-1, 2
		before.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonRolloutComplete}}
		p := &pass{before: before, set: before.DeepCopy(), former: former}
		if c.change != nil {
			c.change(p)
		}
		recordFormerRevision(p)
		assert.Equal(t, c.want, p.set.Status.GoodRevisions, name)
	}
}
