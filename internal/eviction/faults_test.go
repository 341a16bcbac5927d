package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// evictCanary evicts the pods of the first eviction, and creates no replacement.
func (c *cluster) evictCanary(t *testing.T) protocol.Eviction {
	t.Helper()
	plan := c.next(nil)
	require.Len(t, plan.Evict, 1)
	var result protocol.EvictPodsResult
	for _, pod := range plan.Evict[0].Pods {
		result.Evicted = append(result.Evicted, pod.UID)
	}
	c.state, _ = Written(&plan, &result, c.now)
	c.remove(result.Evicted...)
	return plan.Evict[0]
}

func (c *cluster) next(terminating map[types.UID]bool) protocol.EvictionPlan {
	return Next(Input{State: c.state, Policy: c.policy, Sets: c.sets, Pods: c.pods, Terminating: terminating, Now: c.now})
}

// plan advances the time by after, and makes a plan whose evictions are not executed.
func (c *cluster) plan(after time.Duration, terminating ...types.UID) protocol.EvictionPlan {
	c.now = c.now.Add(after)
	set := map[types.UID]bool{}
	for _, uid := range terminating {
		set[uid] = true
	}
	plan := c.next(set)
	plan.Evict = nil
	c.state, _ = Written(&plan, &protocol.EvictPodsResult{}, c.now)
	return plan
}

func (c *cluster) remove(uids ...types.UID) {
	c.pods = slices.DeleteFunc(slices.Clone(c.pods), func(pod Pod) bool { return slices.Contains(uids, pod.UID) })
}

// Temporal retries the activity of a plan while the API server is down.
func TestSpec13_3_AnOutageDuringAnActivityIsNoFailure(t *testing.T) {
	c := newCluster(1)
	c.addOld("web", 2)
	c.evictCanary(t)
	began := c.now.Add(InFlightWait)
	plan := Next(Input{State: c.state, Policy: c.policy, Sets: c.sets, Pods: c.pods, Now: began})
	c.now = began.Add(15 * time.Minute)
	c.state, _ = Written(&plan, &protocol.EvictPodsResult{}, began)
	assert.Empty(t, c.plan(20*time.Second).State.Failed)
	assert.NotEmpty(t, c.plan(20*time.Second).State.InFlight)
	for range 31 {
		plan = c.plan(20 * time.Second)
	}
	assert.Len(t, plan.State.Failed, 1, "the time starts again after the outage")
}

// The controller of a StatefulSet creates a replacement only after the evicted pod has ended.
func TestSpec13_3_TheTimeOfAReplacementStartsAfterALongTermination(t *testing.T) {
	c := newCluster(1)
	c.add("StatefulSet", "db", "logs", true)
	uid := c.evictCanary(t).Pods[0].UID
	for range 45 {
		c.plan(20*time.Second, uid)
	}
	for range 29 {
		assert.Empty(t, c.plan(20*time.Second).State.Failed)
	}
	c.add("StatefulSet", "db", "", true)
	plan := c.plan(20 * time.Second)
	assert.Empty(t, plan.State.Failed)
	assert.Len(t, plan.State.Proven, 1)
}

// The controller of a DaemonSet creates no pod on a lost node. The evicted pod on this node never ends.
func TestSpec13_3_APodOfALostNodeIsNoFailure(t *testing.T) {
	c := newCluster(1)
	c.add("DaemonSet", "agent", "logs", false)
	c.add("DaemonSet", "agent", "logs", true)
	uid := c.evictCanary(t).Pods[0].UID
	for range 181 {
		c.plan(20*time.Second, uid)
	}
	plan := c.next(map[types.UID]bool{uid: true})
	assert.Empty(t, plan.State.Failed)
	require.Len(t, plan.Evict, 1, "the other pods are not blocked")
	assert.False(t, plan.Evict[0].Unready)
}

func TestSpec13_2_ASidecarSetThatWaitsBlocksNoOther(t *testing.T) {
	c := newCluster(1)
	c.sets["alpha"] = Set{UID: "s0", Generation: 1, MaxUnavailable: 100, Waits: "SidecarSet alpha is paused"}
	for range 2 {
		c.add("ReplicaSet", "web", "alpha", true).Outdated = []string{"alpha", "logs"}
	}
	e := c.evictCanary(t)
	assert.Equal(t, "logs", e.SidecarSet.Name)
	// The replacement has the newest content of logs, but not of alpha.
	c.now = c.now.Add(time.Second)
	c.add("ReplicaSet", "web", "alpha", true)
	plan := c.plan(InFlightWait)
	assert.Empty(t, plan.State.Failed)
	assert.Equal(t, "logs", plan.State.Proven[0].SidecarSet.Name)
	assert.Contains(t, plan.Message, "1 pod is not evicted: SidecarSet alpha is paused")

	c = newCluster(1)
	c.sets["alpha"] = Set{UID: "s0", Generation: 1, MaxUnavailable: 100}
	c.add("ReplicaSet", "web", "alpha", true).Outdated = []string{"alpha", "logs"}
	c.add("ReplicaSet", "web", "alpha", true).Outdated = []string{"alpha", "logs"}
	assert.Equal(t, "alpha", c.evictCanary(t).SidecarSet.Name)
	// The content of alpha was reverted, so the remaining pod is outdated for logs only.
	c.pods[0].Outdated = []string{"logs"}
	assert.Empty(t, c.plan(InFlightWait).State.Failed)
}

func TestSpec13_2_AFailedEvictionKeepsItsSlot(t *testing.T) {
	c := newCluster(1)
	c.sets["logs"] = Set{UID: "s1", Generation: 1, MaxUnavailable: 1}
	c.prove()
	c.addOld("a", 1)
	c.addOld("b", 1)
	c.evictCanary(t)
	var plan protocol.EvictionPlan
	for range 31 {
		plan = c.plan(20 * time.Second)
	}
	require.Len(t, plan.State.Failed, 1)
	plan = c.next(nil)
	assert.Empty(t, plan.Evict)
	assert.Equal(t, remainingWait, plan.Wait, "a failed eviction needs no frequent plans")
	assert.Contains(t, plan.Message, "1 pod is not evicted: maxUnavailable has no slot")
	c.add("ReplicaSet", "a", "", true)
	plan = c.next(nil)
	assert.Len(t, plan.State.Failed, 1, "a failure does not end by itself")
	require.Len(t, plan.Evict, 1)
	assert.Equal(t, "b", plan.Evict[0].Owner.Name)

	c.state.Failed = nil
	c.pods = c.pods[:1]
	assert.Len(t, c.next(nil).Evict, 1, "another attempt is permitted")
}

// The eviction of the first owner uses the whole time of each activity.
func TestSpec13_2_SlowEvictionsStopNoOtherOwner(t *testing.T) {
	c := newCluster(1)
	c.prove()
	for _, owner := range []string{"a", "b", "c", "d"} {
		c.addOld(owner, 1)
	}
	seen := map[string]bool{}
	for range 4 {
		plan := c.next(nil)
		first := plan.Evict[0]
		seen[first.Owner.Name] = true
		c.state, _ = Written(&plan, &protocol.EvictPodsResult{Rejected: []protocol.RejectedPod{{PodReference: first.Pods[0].PodReference}}}, c.now)
	}
	assert.Len(t, seen, 4)
	assert.Equal(t, 1, c.state.Rotations, "each owner counts once")
}

func TestSpec13_3_AnUnreadableSidecarSetForgetsNothing(t *testing.T) {
	c := newCluster(1)
	c.addOld("web", 2)
	c.outdated["web"] = "logs"
	for range 3 {
		c.step()
	}
	require.Len(t, c.state.Failed, 1)
	since := c.state.Since
	require.NotZero(t, since)
	pods := c.pods
	c.sets["logs"], c.pods = Set{UID: "s1", Generation: 1, Waits: "the pods of SidecarSet logs are not known: no namespace", Unknown: true}, nil
	plan := c.plan(time.Second)
	assert.Contains(t, plan.Message, "the pods of SidecarSet logs are not known: no namespace")
	c.sets["logs"], c.pods = Set{UID: "s1", Generation: 0, MaxUnavailable: 100}, pods
	c.plan(time.Second) // a worker with a stale cache makes this plan
	c.sets["logs"] = Set{UID: "s1", Generation: 1, MaxUnavailable: 100}
	plan = c.next(nil)
	assert.Empty(t, plan.Evict)
	assert.Len(t, plan.State.Failed, 1)
	assert.Equal(t, since, plan.State.Since)
}

func TestSpec13_2_ASuccessOfOlderContentProvesNothing(t *testing.T) {
	c := newCluster(1)
	c.addOld("a", 2)
	c.addOld("b", 2)
	c.evictCanary(t)
	c.sets["logs"] = Set{UID: "s1", Generation: 2, MaxUnavailable: 100}
	c.now = c.now.Add(time.Second)
	c.add("ReplicaSet", "a", "", true)
	plan := c.next(nil)
	assert.Empty(t, plan.State.Proven)
	assert.Len(t, plan.Evict, 1, "the new generation begins with a canary")
}

func TestSpec13_5_AnotherAttemptBeginsWithoutBackoff(t *testing.T) {
	c := newCluster(1)
	c.prove()
	c.addOld("web", 1)
	c.state.Rejected, c.state.Rotations = 3, 8
	c.sets["logs"] = Set{UID: "s1", Generation: 2, MaxUnavailable: 100}
	plan := c.next(nil)
	assert.Zero(t, plan.State.Rotations)
	assert.Zero(t, plan.State.Rejected)
}

// The selectors of the webhook may exclude individual pods of an owner.
func TestSpec13_1_APodWithoutWebhookBlocksNoOther(t *testing.T) {
	c := newCluster(1)
	c.addOld("web", 2)
	c.pods[0].Waits = "the API server does not call the webhook for their replacements"
	plan := c.next(nil)
	require.Len(t, plan.Evict, 1)
	assert.Equal(t, c.pods[1].UID, plan.Evict[0].Pods[0].UID)
	assert.Contains(t, plan.Message, "1 pod is not evicted: the API server does not call the webhook")
}

// The cache of namespaces may lack a namespace, and the cache of another worker may be stale.
func TestSpec13_3_AnEvictionIsNotJudgedWithoutItsSidecarSet(t *testing.T) {
	for name, unread := range map[string]Set{
		"unreadable":        {UID: "s1", Generation: 1, Waits: "not known", Unknown: true},
		"in an older cache": {UID: "s1", Generation: 0, MaxUnavailable: 100},
	} {
		c := newCluster(1)
		c.sets["alpha"] = Set{UID: "s0", Generation: 1, MaxUnavailable: 100, Waits: "SidecarSet alpha is paused"}
		for range 2 {
			c.add("ReplicaSet", "web", "logs", true).Outdated = []string{"alpha", "logs"}
		}
		c.evictCanary(t)
		good := c.sets["logs"]
		c.sets["logs"], c.pods[0].Outdated = unread, []string{"alpha"}
		for range 40 {
			plan := c.plan(20 * time.Second)
			assert.Empty(t, plan.State.Proven, name)
			assert.Empty(t, plan.State.Failed, name)
			require.Len(t, plan.State.InFlight, 1, name)
			assert.GreaterOrEqual(t, plan.Wait, remainingWait, "the pods may stay unknown for long")
		}
		c.sets["logs"], c.pods[0].Outdated = good, []string{"alpha", "logs"}
		for range 31 {
			c.plan(20 * time.Second)
		}
		assert.Len(t, c.state.Failed, 1, name)
	}
}

// The webhook does not inject the replacement, and the app is not ready without its sidecars.
func TestSpec13_2_AFailedEvictionKeepsItsSlotWhileItsNewPodIsNotReady(t *testing.T) {
	c := newCluster(1)
	c.sets["logs"] = Set{UID: "s1", Generation: 1, MaxUnavailable: 1}
	c.prove()
	c.addOld("a", 1)
	c.addOld("b", 1)
	c.evictCanary(t)
	c.now = c.now.Add(time.Second)
	c.add("ReplicaSet", "a", "logs", false)
	plan := c.plan(InFlightWait)
	require.Len(t, plan.State.Failed, 1)
	assert.Empty(t, c.next(nil).Evict)
	c.pods[1].Ready = true
	plan = c.next(nil)
	require.Len(t, plan.Evict, 1)
	assert.Equal(t, "b", plan.Evict[0].Owner.Name)
	assert.Len(t, plan.State.Failed, 1)
}

func TestSpec13_4_AFailedEvictionWithoutOutdatedPodsIsNotOverdue(t *testing.T) {
	c := newCluster(1)
	c.prove()
	c.addOld("web", 1)
	c.evictCanary(t)
	for range 31 {
		c.plan(20 * time.Second)
	}
	require.Len(t, c.state.Failed, 1)
	c.state.Due = c.now.Add(15 * 24 * time.Hour)
	plan := c.plan(15 * 24 * time.Hour)
	assert.False(t, plan.Overdue)
	assert.Zero(t, plan.State.Since)
}

// A retried activity may report the evictions of its first attempt hours later.
func TestSpec13_3_AnOutageDuringTheEvictionsCountsOnce(t *testing.T) {
	c := newCluster(1)
	c.addOld("web", 1)
	plan := c.next(nil)
	c.state, _ = Written(&plan, &protocol.EvictPodsResult{Evicted: []types.UID{plan.Evict[0].Pods[0].UID}}, c.now)
	c.pods = nil
	plan = c.plan(8 * time.Hour)
	assert.False(t, plan.State.InFlight[0].Since.After(c.now))
	for range 31 {
		plan = c.plan(20 * time.Second)
	}
	assert.Len(t, plan.State.Failed, 1)
}

// An autoscaler may reduce the replicas of the owner by the number of evicted pods.
func TestSpec13_3_AnOwnerThatIsScaledDownHasNotFailed(t *testing.T) {
	for _, c := range []struct {
		replicas int
		unready  bool
		failed   int
	}{{replicas: 2}, {replicas: 3, failed: 1}, {replicas: 2, unready: true, failed: 1}} {
		cluster := newCluster(1)
		cluster.addOld("web", 3)
		owner := cluster.evictCanary(t).Owner
		cluster.pods[0].Ready = !c.unready
		cluster.now = cluster.now.Add(10*time.Minute + time.Second)
		cluster.state.Due = cluster.now
		assert.Len(t, Late(&cluster.state, cluster.now), 1)
		ready := map[protocol.Owner]int{owner: 2}
		if c.unready {
			ready[owner] = 1
		}
		plan := Next(Input{State: cluster.state, Policy: cluster.policy, Sets: cluster.sets, Pods: cluster.pods, Replicas: map[protocol.Owner]int{owner: c.replicas}, ReadyOf: ready, Now: cluster.now})
		assert.Len(t, plan.State.Failed, c.failed, c)
		assert.Empty(t, plan.State.Proven)
	}
}

// The only healthy owner has a PodDisruptionBudget that permits no eviction.
func TestSpec13_2_AnUnhealthyOwnerIsTheCanaryIfAllOthersAreRejected(t *testing.T) {
	c := newCluster(1)
	c.addOld("a", 3)
	c.rejects["a"] = true
	c.add("ReplicaSet", "b", "logs", false)
	c.add("ReplicaSet", "b", "logs", true)
	for range 20 {
		c.step()
	}
	assert.Equal(t, map[string]int{"b": 2}, c.evicted)
}

// The controller of a StatefulSet or of a DaemonSet replaces a pod only after the pod has ended. A pod that
// terminates during an update of the workload is therefore unavailable, like an evicted pod.
func TestSpec13_2_TerminatingPodsCountIfTheyAreReplacedAfterTheirEnd(t *testing.T) {
	for kind, evicted := range map[string]int{"StatefulSet": 0, "DaemonSet": 0, "ReplicaSet": 1} {
		c := newCluster(1)
		c.add(kind, "db", "logs", true)
		c.add(kind, "db", "logs", true)
		c.prove()
		owner := OwnerOf(c.pods[0].Pod)
		plan := Next(Input{State: c.state, Policy: c.policy, Sets: c.sets, Pods: c.pods, TerminatingOf: map[protocol.Owner]int{owner: 1}, Now: c.now})
		assert.Len(t, plan.Evict, evicted, kind)
	}
}

// Pods of a StatefulSet are not evicted while another pod of the StatefulSet terminates on a lost node. The
// StatefulSet must not block the evictions of other owners.
func TestSpec13_2_AnOwnerWithAPodThatIsStuckIsNoBetterCanary(t *testing.T) {
	c := newCluster(1)
	c.add("StatefulSet", "db", "logs", true)
	c.add("ReplicaSet", "web", "logs", false)
	c.add("ReplicaSet", "web", "logs", true)
	db, web := OwnerOf(c.pods[0].Pod), OwnerOf(c.pods[1].Pod)
	evicted := func(terminating int, stuck bool) (owners []protocol.Owner) {
		for _, e := range Next(Input{
			State: c.state, Policy: c.policy, Sets: c.sets, Pods: c.pods, Now: c.now,
			TerminatingOf: map[protocol.Owner]int{db: terminating}, Stuck: map[protocol.Owner]bool{db: stuck},
		}).Evict {
			owners = append(owners, e.Owner)
		}
		return owners
	}
	assert.Equal(t, []protocol.Owner{db}, evicted(0, false))
	assert.Empty(t, evicted(1, false), "the StatefulSet restarts a pod itself")
	assert.Equal(t, []protocol.Owner{web}, evicted(1, true))

	pod := &corev1.Pod{}
	assert.False(t, IsStuck(pod, c.now))
	pod.DeletionTimestamp = &metav1.Time{Time: c.now}
	assert.False(t, IsStuck(pod, c.now))
	assert.True(t, IsStuck(pod, c.now.Add(replacementTimeout)))
}

// After a restore of etcd, a user edits the SidecarSet before the next plan. The SidecarSet then has other
// content with the same generation.
func TestSpec13_3_OtherContentOfTheSameGenerationNeedsACanary(t *testing.T) {
	for hash, proven := range map[string]bool{"good": true, "other": false} {
		c := newCluster(1)
		c.sets["logs"] = Set{UID: "s1", Generation: 7, Hash: hash, MaxUnavailable: 100}
		for _, name := range []string{"a", "b", "c"} {
			c.addOld(name, 2)
		}
		c.prove()
		c.state.Proven[0].Generation, c.state.Proven[0].Hash = 7, "good"
		plan := c.next(nil)
		assert.Equal(t, proven, len(plan.State.Proven) == 1, hash)
		assert.Equal(t, proven, len(plan.Evict) > 1, "%s: %s", hash, plan.Message)
		for _, e := range plan.Evict {
			assert.Equal(t, hash, e.Hash)
		}
	}
}

// The failure of other content with the same generation does not halt the evictions. Workers of earlier releases
// recorded no hash.
func TestSpec13_3_AFailureOfOtherContentOfTheSameGenerationDoesNotCount(t *testing.T) {
	for _, before := range []struct {
		failed, hash string
		halted       bool
	}{{"bad", "bad", true}, {"bad", "other", false}, {"", "other", true}} {
		c := newCluster(1)
		c.sets["logs"] = Set{UID: "s1", Generation: 7, Hash: "bad", MaxUnavailable: 100}
		c.addOld("a", 2)
		c.addOld("b", 2)
		c.evictCanary(t)
		for range 31 {
			c.plan(20 * time.Second)
		}
		require.Len(t, c.state.Failed, 1)
		assert.Equal(t, "bad", c.state.Failed[0].Hash)
		c.state.Failed[0].Hash = before.failed
		c.sets["logs"] = Set{UID: "s1", Generation: 7, Hash: before.hash, MaxUnavailable: 100}
		plan := c.next(nil)
		assert.Equal(t, before.halted, len(plan.State.Failed) == 1, "%+v", before)
	}
}

// etcd was restored to an older generation of the SidecarSet. A user may have edited the SidecarSet after the
// restore.
func TestSpec13_3_ARestoredSidecarSetNeedsACanary(t *testing.T) {
	c := newCluster(1)
	c.sets["logs"] = Set{UID: "s1", Generation: 7, MaxUnavailable: 100}
	c.addOld("a", 2)
	c.addOld("b", 2)
	c.evictCanary(t)
	c.state.Proven = []protocol.ProvenContent{{SidecarSet: protocol.SetReference{Name: "logs", UID: "s1"}, Generation: 7}}
	c.state.Failed = []outriggerv1.FailedEviction{{SidecarSet: "logs", SidecarSetUID: "s1", Generation: 6, Namespace: "shop", Kind: "ReplicaSet", Name: "x"}}
	reference := protocol.SetReference{Name: "logs", UID: "s1"}
	assert.EqualValues(t, 7, NewestGeneration(&c.state, reference))
	assert.Zero(t, NewestGeneration(&c.state, protocol.SetReference{Name: "logs", UID: "s2"}))

	c.sets["logs"] = Set{UID: "s1", Generation: 5, MaxUnavailable: 100, Restored: true}
	plan := c.plan(20 * time.Second)
	assert.Empty(t, plan.State.Proven)
	assert.Empty(t, plan.State.Failed)
	for range 31 {
		plan = c.plan(20 * time.Second)
	}
	assert.Empty(t, plan.State.Failed, "the eviction belongs to other content")
	for _, e := range plan.State.InFlight {
		assert.EqualValues(t, 5, e.Generation)
	}
}
