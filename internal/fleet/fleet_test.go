package fleet

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

func policy() *outriggerv1.FleetPolicy {
	p := &outriggerv1.FleetPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "outrigger.io/v1alpha1", Kind: "FleetPolicy"}, Metadata: outriggerv1.FleetPolicyMetadata{Name: "edge"}}
	p.Spec.SidecarSets.MatchNames = []string{"envoy", "logs-*"}
	p.Spec.Stages = []outriggerv1.FleetStage{
		{Name: "canary", Clusters: outriggerv1.FleetClusters{MatchLabels: map[string]string{"stage": "canary"}}, Bake: &metav1.Duration{Duration: time.Hour}},
		{Name: "europe", Clusters: outriggerv1.FleetClusters{MatchLabels: map[string]string{"region": "eu"}}, MaxConcurrentClusters: new(intstr.FromString("25%"))},
		{Name: "rest"},
	}
	return p
}

func TestSpec12_1_WrongPoliciesAreRejected(t *testing.T) {
	require.NoError(t, Validate(policy()))
	for says, change := range map[string]func(*outriggerv1.FleetPolicy){
		"apiVersion and kind: use outrigger.io/v1alpha1 and FleetPolicy": func(p *outriggerv1.FleetPolicy) { p.Kind = "RolloutPolicy" },
		"metadata.name: ": func(p *outriggerv1.FleetPolicy) { p.Metadata.Name = "Edge" },
		"spec.sidecarSets.matchNames: name at least one":       func(p *outriggerv1.FleetPolicy) { p.Spec.SidecarSets.MatchNames = nil },
		`spec.sidecarSets.matchNames[0]: "[" is not a name`:    func(p *outriggerv1.FleetPolicy) { p.Spec.SidecarSets.MatchNames[0] = "[" },
		"spec.stages: a policy must have 1 to 50 stages":       func(p *outriggerv1.FleetPolicy) { p.Spec.Stages = nil },
		`spec.stages[1].name: the names of stages must differ`: func(p *outriggerv1.FleetPolicy) { p.Spec.Stages[1].Name = "canary" },
		"spec.stages[0].clusters.matchLabels.a b: ":            func(p *outriggerv1.FleetPolicy) { p.Spec.Stages[0].Clusters.MatchLabels["a b"] = "c" },
		"spec.stages[1].maxConcurrentClusters: ":               func(p *outriggerv1.FleetPolicy) { p.Spec.Stages[1].MaxConcurrentClusters = new(intstr.FromInt32(0)) },
		"spec.stages[0].bake: use a duration of at least 0s":   func(p *outriggerv1.FleetPolicy) { p.Spec.Stages[0].Bake.Duration = -1 },
		`spec.failure.action: "Explode" is none of`:            func(p *outriggerv1.FleetPolicy) { p.Spec.Failure.Action = "Explode" },
		"spec.failure.maxFailedClusters: use a number":         func(p *outriggerv1.FleetPolicy) { p.Spec.Failure.MaxFailedClusters = -1 },
		"spec.unreachable.max: use a number of clusters":       func(p *outriggerv1.FleetPolicy) { p.Spec.Unreachable.Max = new(intstr.FromString("x")) },
		"spec.unreachable.after: use a positive duration":      func(p *outriggerv1.FleetPolicy) { p.Spec.Unreachable.After = &metav1.Duration{} },
	} {
		t.Run(says, func(t *testing.T) {
			wrong := policy()
			change(wrong)
			require.ErrorContains(t, Validate(wrong), says)
		})
	}
}

func TestSpec12_1_ThePolicyWhoseNameSortsFirstApplies(t *testing.T) {
	policies := map[string]protocol.AppliedFleetPolicy{"b": {Spec: policy().Spec}, "a": {Spec: policy().Spec}, "0": {}}
	for set, want := range map[string]string{"envoy": "a", "logs-node": "a", "logs": "", "mesh": ""} {
		name, _ := PolicyOf(set, policies)
		assert.Equal(t, want, name, set)
	}
}

// fleetOf simulates a fleet with a simulated clock.
type fleetOf struct {
	t       *testing.T
	rand    *rand.Rand
	state   protocol.FleetState
	members map[string]protocol.FleetMember
	now     time.Time
	running map[string]string // running maps the uid of a cluster to the content of its running rollout
	// ended maps the uid of a cluster to the end of its rollout of the current content.
	ended   map[string]time.Time
	started map[string]time.Time
}

func newFleetOf(t *testing.T, seed int64) *fleetOf {
	f := &fleetOf{t: t, rand: rand.New(rand.NewSource(seed)), members: map[string]protocol.FleetMember{}, now: time.Unix(1_700_000_000, 0), running: map[string]string{}}
	f.state = protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling, Rules: NewestRules}
	for i := range 2 + f.rand.Intn(20) {
		f.join(i)
	}
	return f
}

func (f *fleetOf) join(i int) {
	labels := []map[string]string{{"stage": "canary"}, {"region": "eu"}, nil}[f.rand.Intn(3)]
	if i == 0 {
		labels = map[string]string{"stage": "canary"}
	}
	if i == 1 {
		labels = map[string]string{"region": "eu"}
	}
	uid := fmt.Sprint("c", i)
	f.members[uid] = protocol.FleetMember{UID: uid, Name: uid, Labels: labels}
}

func (f *fleetOf) refresh() {
	registry := &protocol.FleetRegistry{Members: f.members, Policies: map[string]protocol.AppliedFleetPolicy{"edge": {Spec: policy().Spec}}}
	plan := PlanOf("envoy", registry)
	Adopt(&f.state, &plan, false)
}

func (f *fleetOf) report(uid, hash string) {
	_, ended := f.ended[uid]
	if Report(&f.state, protocol.FleetContent{Member: uid, Hash: hash, Settled: ended && hash == f.state.Hash}, time.Now()) == Superseded {
		f.running, f.ended, f.started = map[string]string{}, map[string]time.Time{}, map[string]time.Time{}
	}
	f.refresh()
}

// step executes the next step, and ends a random subset of the running rollouts.
func (f *fleetOf) step() {
	next := Next(&f.state, f.now)
	for _, uid := range next.Start {
		f.running[uid], f.started[uid] = f.state.Hash, f.now
		f.checkOrder(uid)
	}
	if next.Refresh {
		f.refresh()
	}
	for uid := range f.state.Clusters {
		if f.running[uid] != "" && f.rand.Intn(3) == 0 {
			delete(f.running, uid)
			state := protocol.ClusterCompleted
			if f.rand.Intn(5) == 0 && f.state.Clusters[uid].Stage > 0 {
				state = protocol.ClusterSkipped
			}
			if state == protocol.ClusterCompleted {
				f.ended[uid] = f.now
			}
			Finish(&f.state, uid, protocol.FleetResult{State: state}, f.now)
		}
	}
	f.now = f.now.Add(time.Duration(f.rand.Intn(30)) * time.Minute)
}

// checkOrder checks that the rollout in a cluster begins only after each earlier stage has a completed cluster
// and the bake time of the stage has ended. A cluster that joins an earlier stage later needs no further bake
// time.
func (f *fleetOf) checkOrder(uid string) {
	stage := f.state.Clusters[uid].Stage
	require.LessOrEqual(f.t, stage, f.state.Stage)
	for before := range stage {
		completed, first := false, f.now
		for other, cluster := range f.state.Clusters {
			if end, ok := f.ended[other]; ok && cluster.Stage == before {
				completed = true
				if end.Before(first) {
					first = end
				}
			}
		}
		if before == 0 {
			require.False(f.t, f.now.Before(first.Add(time.Hour)), "%s began in the bake time of stage %d", uid, before)
		}
		require.True(f.t, completed, "%s of stage %d began before a cluster of stage %d had completed", uid, stage, before)
	}
}

// In each of a thousand random fleets, clusters report content, join and complete in a random order.
func TestSpec12_2_NoClusterBeginsBeforeItsStage(t *testing.T) {
	through := 0
	for seed := range int64(1000) {
		f := newFleetOf(t, seed)
		f.report("c1", "h1")
		for range 200 {
			switch {
			case f.rand.Intn(2) == 0:
				f.report(fmt.Sprint("c", f.rand.Intn(len(f.members))), "h1")
			case f.rand.Intn(60) == 0:
				f.join(len(f.members))
				f.report(fmt.Sprint("c", len(f.members)-1), f.state.Hash)
			}
			f.step()
		}
		if f.state.Phase == protocol.FleetThrough {
			through++
		}
	}
	assert.Greater(t, through, 900)
}

func TestSpec12_2_MaxConcurrentClustersIsAPercentageOfTheStage(t *testing.T) {
	f := newFleetOf(t, 1)
	f.members = map[string]protocol.FleetMember{"c": {UID: "c", Name: "c", Labels: map[string]string{"stage": "canary"}}}
	for i := range 10 {
		uid := fmt.Sprint("e", i)
		f.members[uid] = protocol.FleetMember{UID: uid, Name: uid, Labels: map[string]string{"region": "eu"}}
		f.report(uid, "h1")
	}
	f.report("c", "h1")
	assert.Equal(t, []string{"c"}, Next(&f.state, f.now).Start)
	Finish(&f.state, "c", protocol.FleetResult{State: protocol.ClusterCompleted}, f.now)
	assert.Equal(t, f.now.Add(time.Hour), Next(&f.state, f.now).Until)
	f.now = f.now.Add(time.Hour)
	assert.True(t, Next(&f.state, f.now).Refresh)
	assert.Equal(t, []string{"e0", "e1", "e2"}, Next(&f.state, f.now).Start)
	assert.Empty(t, Next(&f.state, f.now).Start)
}

func TestSpec12_2_AStageWithoutACompletedClusterDoesNotEnd(t *testing.T) {
	f := newFleetOf(t, 1)
	f.members = map[string]protocol.FleetMember{"e": {UID: "e", Name: "e", Labels: map[string]string{"region": "eu"}}}
	f.report("e", "h1")
	assert.Equal(t, Step{}, Next(&f.state, f.now))
	assert.Equal(t, "stage canary waits: no cluster of the stage has completed", f.state.Message)
	f.members["c"] = protocol.FleetMember{UID: "c", Name: "c", Labels: map[string]string{"stage": "canary"}}
	f.report("c", "h1")
	assert.Equal(t, []string{"c"}, Next(&f.state, f.now).Start)
	Finish(&f.state, "c", protocol.FleetResult{State: protocol.ClusterSkipped}, f.now)
	assert.Equal(t, Step{}, Next(&f.state, f.now))
	f.report("c", "h1")
	assert.Equal(t, []string{"c"}, Next(&f.state, f.now).Start, "a skipped cluster that returns begins again")
}

// Clusters without the content do not count against maxConcurrentClusters. The stage skips these clusters once
// unreachable.after has passed since the start of the stage.
func TestSpec12_2_ClustersWithoutTheContentTakeNoPlace(t *testing.T) {
	f := newFleetOf(t, 1)
	f.members = map[string]protocol.FleetMember{}
	for i := range 10 {
		uid := fmt.Sprint("c", i)
		f.members[uid] = protocol.FleetMember{UID: uid, Name: uid, Labels: map[string]string{"stage": "canary"}}
	}
	f.report("c7", "h1")
	step := Next(&f.state, f.now)
	assert.Equal(t, Step{Start: []string{"c7"}, Until: f.now.Add(defaultUnreachable)}, step)
	Finish(&f.state, "c7", protocol.FleetResult{State: protocol.ClusterCompleted}, f.now)
	assert.Equal(t, step.Until, Next(&f.state, f.now).Until)
	assert.Equal(t, "stage canary waits for 9 clusters without the content", f.state.Message)
	f.report("c8", "h1")
	assert.Equal(t, []string{"c8"}, Next(&f.state, f.now).Start)
	Finish(&f.state, "c8", protocol.FleetResult{State: protocol.ClusterCompleted}, f.now)
	assert.Equal(t, step.Until.Add(time.Hour), Next(&f.state, step.Until).Until, "the bake time")
	assert.Equal(t, protocol.ClusterSkipped, f.state.Clusters["c0"].State)
	assert.Equal(t, "the cluster did not have the content within 10m0s", f.state.Clusters["c0"].Reason)
}

// Content that a cluster already has when the cluster joins does not supersede the current content.
func TestSpec12_3_SettledContentOfANewMemberSupersedesNothing(t *testing.T) {
	s := &protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling, Rules: NewestRules}
	report := func(member, hash string, settled bool) Effect {
		return Report(s, protocol.FleetContent{Member: member, Hash: hash, Settled: settled}, time.Now())
	}
	require.Equal(t, Superseded, report("a", "h1", true), "the first content")
	require.Equal(t, Nothing, report("b", "h0", true))
	require.Equal(t, Superseded, report("b", "h2", false))
	require.Equal(t, Superseded, report("b", "h0", true), "the cluster had the current content before")
}

// Cluster b joins with content h0, which was never the current content. Then the SidecarSet of cluster b is
// recreated, or cluster c also reports h0.
func TestSpec12_3_ContentThatAClusterBehindReportedSupersedesNothing(t *testing.T) {
	for _, member := range []string{"b", "c"} {
		for rules, want := range map[int]Effect{NewestRules: Nothing, 4: Superseded} {
			s := &protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling, Rules: rules}
			report := func(member, hash string, settled bool) Effect {
				return Report(s, protocol.FleetContent{Member: member, Hash: hash, Settled: settled}, time.Now())
			}
			require.Equal(t, Superseded, report("a", "h1", false), "the first content")
			require.Equal(t, Nothing, report("b", "h0", true))
			require.Equal(t, want, report(member, "h0", false), "%s, rules %d", member, rules)
			require.Equal(t, Superseded, report(member, "h2", false), "new content supersedes")
		}
	}
}

// etcd of a cluster was restored to a time before the permit of the cluster.
func TestSpec12_3_AClusterThatLostItsPermitBeginsAgain(t *testing.T) {
	s := &protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling, Rules: NewestRules}
	Report(s, protocol.FleetContent{Member: "a", Hash: "h1"}, time.Now())
	s.Clusters["a"].State = protocol.ClusterCompleted
	Report(s, protocol.FleetContent{Member: "a", Hash: "h1", Settled: true}, time.Now())
	require.Equal(t, protocol.ClusterCompleted, s.Clusters["a"].State)
	Report(s, protocol.FleetContent{Member: "a", Hash: "h1"}, time.Now())
	require.Equal(t, protocol.ClusterPending, s.Clusters["a"].State)
}

func TestSpec12_3_OnlyNewContentSupersedes(t *testing.T) {
	s := &protocol.FleetState{Set: "envoy", Phase: protocol.FleetRolling, Rules: NewestRules}
	report := func(member, hash string) Effect {
		return Report(s, protocol.FleetContent{Member: member, Hash: hash}, time.Now())
	}
	require.Equal(t, Superseded, report("a", "h1"))
	require.Equal(t, Joined, report("b", "h1"))
	require.Equal(t, Superseded, report("a", "h2"))
	require.Equal(t, Nothing, report("c", "h1"), "a cluster that is behind supersedes nothing")
	require.Equal(t, "h2", s.Hash)
	require.Equal(t, Superseded, report("a", "h1"), "a cluster that had the current content went back")
	require.Equal(t, protocol.FleetSuperseded, VerdictOf(s, "h2"))
	s.Clusters["a"].Name = "a"
	s.Clusters["a"].State, s.Clusters["a"].Stage = protocol.ClusterRunning, 0
	Finish(s, "a", protocol.FleetResult{State: protocol.ClusterFailed, Reason: "bad"}, time.Now())
	require.Equal(t, protocol.FleetPaused, s.Phase)
	require.Equal(t, "cluster a failed: bad", s.Message)
	require.Equal(t, Superseded, report("a", "h3"))
	require.Equal(t, Nothing, report("a", "h1"), "content that failed is refused")
}

func TestSpec12_5_PermitsAreForContent(t *testing.T) {
	set := func(change func(*v1alpha1.SidecarSetStatus)) *v1alpha1.SidecarSet {
		s := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.HashAnnotation: "h2"}}}
		change(&s.Status)
		return s
	}
	permit := func(hash string) func(*v1alpha1.SidecarSetStatus) {
		return func(s *v1alpha1.SidecarSetStatus) {
			s.Rollout = &v1alpha1.RolloutStatus{Permit: protocol.Permit{Hash: hash, Stage: "rest", Attempt: 1}.String()}
		}
	}
	good := func(hash, version string) func(*v1alpha1.SidecarSetStatus) {
		return func(s *v1alpha1.SidecarSetStatus) {
			s.GoodRevisions = []v1alpha1.GoodRevision{{Hash: hash, ResourceVersion: version}}
		}
	}
	none := set(func(*v1alpha1.SidecarSetStatus) {})
	assert.False(t, Permitted(none, nil))
	assert.False(t, Permitted(none, &protocol.Permit{Hash: "h1"}))
	assert.True(t, Permitted(none, &protocol.Permit{Hash: "h2"}))
	assert.False(t, Permitted(set(permit("h1")), nil))
	assert.True(t, Permitted(set(permit("h2")), nil))
	for _, damaged := range []string{"", "h2", "x/rest/h2", "1/h2"} {
		assert.False(t, Permitted(set(func(s *v1alpha1.SidecarSetStatus) { s.Rollout = &v1alpha1.RolloutStatus{Permit: damaged} }), nil), damaged)
	}
	assert.True(t, Permitted(set(good("h2", "7")), nil), "its rollout ended last")
	assert.False(t, Permitted(set(good("h2", "")), nil))
	assert.False(t, Permitted(set(good("h1", "7")), nil))
}

func TestSpec12_5_ARolloutWithoutAPermitNeitherBeginsNorEnds(t *testing.T) {
	for phase, held := range map[protocol.Phase]bool{
		protocol.PhaseProgressing: true, protocol.PhaseWaiting: true, protocol.PhaseComplete: true, protocol.PhasePartitionReached: true,
		protocol.PhaseNotUpdate: false, protocol.PhasePaused: false, protocol.PhaseStepReached: false,
	} {
		plan := &rollout.Plan{}
		plan.Phase, plan.Counts.Remaining, plan.Pods = phase, 1, []protocol.SelectedPod{{}}
		if plan.Phase.Ended() {
			plan.Counts.Remaining, plan.Pods = 0, nil
		}
		assert.Equal(t, held, Hold(plan), phase)
		if held {
			assert.Equal(t, protocol.PhaseFrozen, plan.Phase)
			assert.Empty(t, plan.Pods)
		}
	}
}

// etcd of the only canary cluster is restored during the bake time.
func TestSpec12_2_AStageWithoutCompletedClustersBakesAgain(t *testing.T) {
	s, now := rolling(outriggerv1.FleetPause), time.Unix(1_700_000_000, 0)
	s.Stage = 0
	delete(s.Clusters, "joined")
	assert.Equal(t, now.Add(time.Hour), Next(s, now).Until, "the stage bakes")
	now = now.Add(59 * time.Minute)
	Report(s, protocol.FleetContent{Member: "canary", Hash: "h1"}, now)
	require.Equal(t, []string{"canary"}, Next(s, now).Start)
	Finish(s, "canary", protocol.FleetResult{State: protocol.ClusterCompleted}, now)
	assert.Equal(t, now.Add(time.Hour), Next(s, now).Until)
}

// The rollout in a cluster continues when the workflow continues as new.
func TestSpec12_2_ANewRunBeginsInNoOtherCluster(t *testing.T) {
	s := rolling(outriggerv1.FleetPause)
	s.Spec.Stages[1].MaxConcurrentClusters = new(intstr.FromInt32(1))
	s.Clusters["a-pending"] = &protocol.FleetCluster{Name: "a-pending", Hash: "h1", Stage: 1, State: protocol.ClusterPending}
	assert.Equal(t, []string{"bad", "joined"}, Resume(s))
	assert.Empty(t, Next(s, time.Now()).Start)
	s.Rules = 0
	assert.Empty(t, Resume(s), "a run of an earlier release decides as before")
	assert.Equal(t, []string{"a-pending"}, Next(s, time.Now()).Start)
}
