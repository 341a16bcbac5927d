package eviction

import (
	"fmt"
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

// cluster simulates owners whose controllers replace evicted pods.
type cluster struct {
	now     time.Time
	pods    []Pod
	sets    map[string]Set
	policy  *outriggerv1.RolloutPolicy
	state   protocol.EvictionState
	created int
	// outdated maps the name of an owner to the SidecarSet for which new pods of the owner are also outdated.
	outdated map[string]string
	// unready contains the owners whose new pods are not ready.
	unready map[string]bool
	// rejects contains the owners whose evictions are rejected.
	rejects map[string]bool
	// protected contains the pods whose evictions are rejected.
	protected map[types.UID]bool
	evicted   map[string]int
	// delay is the time until a controller recreates an evicted pod.
	delay time.Duration
}

func newCluster(perOwner int32) *cluster {
	return &cluster{
		now:  time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC),
		sets: map[string]Set{"logs": {UID: "s1", Generation: 1, MaxUnavailable: 100}},
		policy: &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge", Generation: 1}, Spec: outriggerv1.RolloutPolicySpec{
			NotUpgradable: &outriggerv1.RolloutNotUpgradable{Action: outriggerv1.EvictNotUpgradable, MaxUnavailablePerOwner: perOwner, Deadline: "14d"}}},
		outdated: map[string]string{}, unready: map[string]bool{}, rejects: map[string]bool{}, protected: map[types.UID]bool{}, evicted: map[string]int{}, delay: time.Second,
	}
}

func (c *cluster) add(kind, owner, outdated string, ready bool) *Pod {
	c.created++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: fmt.Sprintf("%s-%d", owner, c.created), UID: types.UID(fmt.Sprintf("p%d", c.created)), ResourceVersion: "7",
		CreationTimestamp: metav1.NewTime(c.now.Truncate(time.Second)),
	}}
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true)}}
	}
	added := Pod{Pod: pod, Ready: ready}
	if outdated != "" {
		added.Outdated = []string{outdated}
	}
	c.pods = append(c.pods, added)
	return &c.pods[len(c.pods)-1]
}

// prove records a successful eviction for SidecarSet logs in the state.
func (c *cluster) prove() {
	c.state.PolicyGeneration = 1
	c.state.Proven = []protocol.ProvenContent{{SidecarSet: protocol.SetReference{Name: "logs", UID: "s1"}, Generation: 1}}
}

func (c *cluster) addOld(owner string, n int) {
	for range n {
		c.add("ReplicaSet", owner, "logs", true)
	}
}

// step executes one plan. The controllers recreate the evicted pods after delay.
func (c *cluster) step() protocol.EvictionPlan {
	plan := Next(Input{State: c.state, Policy: c.policy, Sets: c.sets, Pods: c.pods, Now: c.now})
	var result protocol.EvictPodsResult
	for _, e := range plan.Evict {
		for _, pod := range e.Pods {
			if c.rejects[e.Owner.Name] || c.protected[pod.UID] {
				result.Rejected = append(result.Rejected, protocol.RejectedPod{PodReference: pod.PodReference})
				continue
			}
			result.Evicted = append(result.Evicted, pod.UID)
		}
	}
	c.state, plan.Wait = Written(&plan, &result, c.now)
	c.now = c.now.Add(c.delay)
	for _, uid := range result.Evicted {
		for i := range c.pods {
			if pod := c.pods[i]; pod.UID == uid {
				owner := metav1.GetControllerOfNoCopy(pod.Pod).Name
				c.pods = append(c.pods[:i], c.pods[i+1:]...)
				c.evicted[owner]++
				c.add("ReplicaSet", owner, c.outdated[owner], !c.unready[owner])
				break
			}
		}
	}
	c.now = c.now.Add(plan.Wait)
	return plan
}

func TestSpec13_2_OneOwnersCanaryIsFirst(t *testing.T) {
	c := newCluster(1)
	for _, owner := range []string{"a", "b", "c"} {
		c.addOld(owner, 2)
	}
	plan := c.step()
	require.Len(t, plan.Evict, 1)
	assert.Equal(t, "a", plan.Evict[0].Owner.Name)
	assert.Equal(t, 6, plan.Remaining)
	assert.Equal(t, "6 pods have to be recreated; 1 eviction waits for a ready replacement; "+
		"4 pods are not evicted: the first eviction for SidecarSet logs has no ready replacement yet; 1 pod is not evicted: maxUnavailablePerOwner has no slot", plan.Message)
	plan = c.step()
	assert.Len(t, plan.Evict, 3, "the canary gave a better pod")
	plan = c.step()
	assert.Len(t, plan.Evict, 2)
	c.step()
	plan = c.step()
	assert.Zero(t, plan.Remaining)
	assert.Equal(t, "no pod has to be recreated", plan.Message)
	assert.Equal(t, idleWait, plan.Wait)
	assert.Zero(t, plan.State.Since)
	assert.Equal(t, 6, plan.State.Evicted)
}

func TestSpec13_3_ABrokenWebhookCostsOnePod(t *testing.T) {
	c := newCluster(1)
	for i := range 10 {
		owner := fmt.Sprintf("owner%d", i)
		c.addOld(owner, 3)
		c.outdated[owner] = "logs"
	}
	for range 20 {
		c.step()
	}
	assert.Equal(t, map[string]int{"owner0": 1}, c.evicted)
	plan := c.step()
	assert.Contains(t, plan.Message, "the eviction of a pod of ReplicaSet shop/owner0 for SidecarSet logs has failed: its new pod owner0-31 lacks the newest content, too")
	assert.Contains(t, plan.Message, "27 pods are not evicted: evictions for SidecarSet logs are halted")

	t.Run("a change of the policy permits another attempt", func(t *testing.T) {
		c.policy.Generation = 2
		for range 20 {
			c.step()
		}
		assert.Equal(t, map[string]int{"owner0": 1, "owner1": 1}, c.evicted)
	})
}

// A creationTimestamp has a resolution of one second, so the replacement and the other pods have the same
// creationTimestamp.
func TestSpec13_3_AReplacementFromTheSameSecond(t *testing.T) {
	c := newCluster(1)
	c.delay = 0
	c.addOld("a", 3)
	c.outdated["a"] = "logs"
	c.step()
	plan := c.step()
	require.Len(t, plan.State.Failed, 1)
	assert.Regexp(t, "its new pod a-[0-9] lacks the newest content, too", plan.State.Failed[0].Reason)
}

// The webhook stops injecting after the canary has succeeded, while pods of several owners are evicted in
// parallel.
func TestSpec13_3_AWebhookThatBreaksCostsOnePodOfEachOwner(t *testing.T) {
	c := newCluster(1)
	for i := range 50 {
		c.addOld(fmt.Sprintf("owner%02d", i), 4)
	}
	c.step()
	for i := range 50 {
		c.outdated[fmt.Sprintf("owner%02d", i)] = "logs"
	}
	for range 50 {
		c.step()
	}
	total := 0
	for owner, n := range c.evicted {
		total += n
		if owner == "owner00" {
			n-- // the canary
		}
		assert.LessOrEqual(t, n, 1, owner)
	}
	assert.LessOrEqual(t, total, 1+maxInFlight)
	assert.GreaterOrEqual(t, len(c.state.Failed), maxFailed)
}

// The new pods of owner b never become ready. Pods of other owners are still evicted.
func TestSpec13_3_AFailedOwnerStopsNoOtherOwner(t *testing.T) {
	c := newCluster(1)
	for _, owner := range []string{"a", "b", "c"} {
		c.addOld(owner, 3)
	}
	c.step()
	c.unready["b"] = true
	for range 200 {
		c.step()
	}
	assert.Equal(t, map[string]int{"a": 3, "b": 1, "c": 3}, c.evicted)
	assert.False(t, c.step().Overdue)
	require.Len(t, c.state.Failed, 1)
	assert.Equal(t, "no new pod with the newest content was ready within 10m0s", c.state.Failed[0].Reason)
}

func TestSpec13_2_OnlyPodsThatAControllerRecreates(t *testing.T) {
	c := newCluster(1)
	for _, kind := range []string{"", "Job", "Node"} {
		c.add(kind, "x"+kind, "logs", true)
	}
	plan := c.step()
	assert.Empty(t, plan.Evict)
	assert.Equal(t, "3 pods have to be recreated; 3 pods are not evicted: no controller recreates the pods", plan.Message)
	assert.Zero(t, plan.State.Since, "these pods cannot meet a deadline")
	assert.Equal(t, []string{"logs"}, plan.Left)
	c.addOld("web", 1)
	assert.Empty(t, c.step().Left)
	c.pods = c.pods[:3]
	assert.Empty(t, c.step().Left, "the eviction is in flight")
}

func TestSpec13_2_MaxUnavailablePerOwner(t *testing.T) {
	c := newCluster(3)
	c.addOld("a", 8)
	c.prove()
	require.Len(t, c.step().Evict[0].Pods, 1, "the first eviction of an owner")
	require.Len(t, c.step().Evict[0].Pods, 3)
	c.pods[len(c.pods)-1].Ready = false
	assert.Empty(t, c.step().Evict, "a replacement is not ready")
	c.pods[len(c.pods)-1].Ready = true
	c.pods[2].Ready = false
	unready := c.pods[2].Name
	plan := c.step()
	require.Len(t, plan.Evict[0].Pods, 1, "an unready pod is evicted without ready ones")
	assert.Equal(t, unready, plan.Evict[0].Pods[0].Name)
}

// The pods of owner a crash with any content, so the canary is a pod of owner b. If the replacement of an
// unready pod crashes, the eviction has not failed.
func TestSpec13_2_AnUnhealthyOwnerIsNoCanary(t *testing.T) {
	c := newCluster(1)
	for range 3 {
		c.add("ReplicaSet", "a", "logs", false)
	}
	c.addOld("b", 3)
	c.unready["a"] = true
	require.Equal(t, "b", c.step().Evict[0].Owner.Name)
	for range 20 {
		c.step()
	}
	assert.Equal(t, map[string]int{"a": 3, "b": 3}, c.evicted)
	assert.Empty(t, c.state.Failed)
}

func TestSpec13_2_AnUnhealthyOwnerIsTheCanaryIfThereIsNoOther(t *testing.T) {
	c := newCluster(1)
	c.add("ReplicaSet", "a", "logs", false)
	c.add("ReplicaSet", "a", "logs", false)
	c.outdated["a"] = "logs"
	for range 20 {
		c.step()
	}
	assert.Equal(t, map[string]int{"a": 1}, c.evicted)
	assert.Len(t, c.state.Failed, 1)
}

// The Deployment rolls out another ReplicaSet while an eviction is in flight.
func TestSpec13_3_ADeploymentIsTheOwnerOfItsReplicaSets(t *testing.T) {
	c := newCluster(1)
	add := func(hash, outdated string) {
		pod := c.add("ReplicaSet", "web-"+hash, outdated, true)
		pod.Labels = map[string]string{"pod-template-hash": hash}
	}
	add("1", "logs")
	add("1", "logs")
	plan := Next(Input{State: c.state, Policy: c.policy, Sets: c.sets, Pods: c.pods, Now: c.now})
	require.Equal(t, protocol.Owner{Namespace: "shop", Kind: "Deployment", Name: "web"}, plan.Evict[0].Owner)
	c.state, _ = Written(&plan, &protocol.EvictPodsResult{Evicted: []types.UID{plan.Evict[0].Pods[0].UID}}, c.now)
	c.pods = nil
	c.now = c.now.Add(time.Minute)
	add("2", "")
	add("2", "")
	plan = c.step()
	assert.Empty(t, plan.State.InFlight)
	assert.Empty(t, plan.State.Failed)
}

func TestSpec13_2_MaxUnavailableCounts(t *testing.T) {
	c := newCluster(1)
	for i := range 9 {
		c.addOld(fmt.Sprintf("owner%d", i), 1)
	}
	c.prove()
	c.sets["logs"] = Set{UID: "s1", Generation: 1, MaxUnavailable: 3, Unavailable: []protocol.Owner{{Kind: "ReplicaSet", Name: "other"}}}
	plan := c.step()
	assert.Len(t, plan.Evict, 2)
	assert.Contains(t, plan.Message, "7 pods are not evicted: maxUnavailable has no slot")
}

func TestSpec13_2_TheMessageNamesTheLimitThatApplies(t *testing.T) {
	for want, c := range map[string]struct {
		perOwner int32
		slots    int
	}{
		"9 pods are not evicted: maxUnavailablePerOwner has no slot": {5, 100},
		"4 pods are not evicted: an eviction has at most 10 pods":    {20, 100},
		"12 pods are not evicted: maxUnavailable has no slot":        {20, 2},
	} {
		owner := newCluster(c.perOwner)
		owner.addOld("web", 15)
		assert.Contains(t, owner.step().Message, "14 pods are not evicted: the first eviction of their owner has no ready replacement yet")
		set := owner.sets["logs"]
		set.MaxUnavailable = c.slots
		owner.sets["logs"] = set
		assert.Contains(t, owner.step().Message, want)
	}
}

func TestSpec13_2_RejectedEvictionsStopNoOtherOwner(t *testing.T) {
	c := newCluster(1)
	for i := range 60 {
		owner := fmt.Sprintf("owner%02d", i)
		c.addOld(owner, 1)
		c.rejects[owner] = i < 50
	}
	for range 200 {
		c.step()
	}
	assert.Len(t, c.evicted, 10)
	assert.Empty(t, c.state.InFlight)
	assert.Equal(t, idleWait, c.step().Wait)
}

// A PodDisruptionBudget never allows the eviction of the first pod.
func TestSpec13_2_ARejectedPodDelaysNoOtherPodOfItsOwner(t *testing.T) {
	c := newCluster(1)
	c.addOld("db", 3)
	c.protected[c.pods[0].UID] = true
	for range 10 {
		c.step()
	}
	assert.Equal(t, 2, c.evicted["db"])
	assert.Equal(t, protocol.Fingerprints{protocol.FingerprintOf(c.pods[0].UID)}, c.next(nil).State.RejectedReady)
}

// The first pod of each owner is protected. The state contains at most one rejected pod of each owner.
func TestSpec13_2_RejectedPodsOfManyOwnersDelayNoOtherPods(t *testing.T) {
	const owners = 210
	for _, ready := range []bool{true, false} {
		c := newCluster(1)
		c.prove()
		for i := range owners {
			for n := range 3 {
				pod := c.add("ReplicaSet", fmt.Sprintf("owner%03d", i), "logs", ready)
				pod.Name = fmt.Sprintf("%s-%d", pod.OwnerReferences[0].Name, n)
				c.protected[pod.UID] = n == 0
			}
		}
		for range 200 {
			c.step()
		}
		assert.Len(t, c.evicted, owners)
		for owner, evicted := range c.evicted {
			assert.Equal(t, 2, evicted, owner)
		}
		next := c.next(nil)
		assert.Equal(t, owners, next.Remaining)
		assert.Len(t, append(next.State.RejectedReady, next.State.RejectedUnready...), owners)
	}
}

// A pod that is unready at every second plan does not change the order of the ready pods.
func TestSpec13_2_AnUnreadyPodKeepsTheOrderOfReadyPods(t *testing.T) {
	c := newCluster(1)
	c.prove()
	c.addOld("db", 4)
	c.rejects["db"] = true
	var tried []string
	for i := range 12 {
		c.pods[1].Ready = i%2 == 0
		plan := c.step()
		require.Len(t, plan.Evict, 1)
		tried = append(tried, plan.Evict[0].Pods[0].Name)
	}
	assert.Equal(t, []string{"db-1", "db-2", "db-2", "db-2", "db-3", "db-2", "db-4", "db-2", "db-1", "db-2", "db-2", "db-2"}, tried)
}

// Owners with unready pods are not part of a rotation while a healthy owner exists. The rejections of the
// healthy owner alone complete the rotations that permit another canary.
func TestSpec13_2_OwnersThatCannotBeTriedDelayNoFallback(t *testing.T) {
	c := newCluster(1)
	for i := range 50 {
		c.add("ReplicaSet", fmt.Sprintf("owner%02d", i), "logs", false)
	}
	c.addOld("protected", 1)
	c.rejects["protected"] = true
	for range 10 {
		c.step()
	}
	assert.NotEmpty(t, c.evicted)
}

func TestSpec13_2_ASidecarSetThatWaits(t *testing.T) {
	c := newCluster(1)
	c.addOld("a", 1)
	c.sets["logs"] = Set{Generation: 1, MaxUnavailable: 10, Waits: "SidecarSet logs is paused"}
	plan := c.step()
	assert.Empty(t, plan.Evict)
	assert.Equal(t, "1 pod has to be recreated; 1 pod is not evicted: SidecarSet logs is paused", plan.Message)
	assert.Equal(t, remainingWait, plan.Wait)
}

func TestSpec13_4_Deadline(t *testing.T) {
	assert.Equal(t, 14*24*time.Hour, deadlineOf("14d"))
	assert.Equal(t, 36*time.Hour, deadlineOf("36h"))
	for _, invalid := range []string{"", "d", "0d", "-1d", "14", "14m"} {
		assert.Zero(t, deadlineOf(invalid), invalid)
	}
	c := newCluster(1)
	c.addOld("a", 1)
	c.rejects["a"] = true
	assert.False(t, c.step().Overdue)
	c.now = c.now.Add(14 * 24 * time.Hour)
	plan := c.step()
	assert.True(t, plan.Overdue)
	assert.Contains(t, plan.Message, "the deadline 14d has passed")
	assert.NotEmpty(t, plan.Evict, "the evictions continue")
}

// The SidecarSet changes while an eviction is in flight. The replacement has the previous content.
func TestSpec13_3_ANewGenerationIsNoFailure(t *testing.T) {
	c := newCluster(1)
	c.addOld("a", 2)
	c.outdated["a"] = "logs"
	c.step()
	c.sets["logs"] = Set{UID: "s1", Generation: 2, MaxUnavailable: 100}
	plan := c.step()
	assert.Empty(t, plan.State.Failed)
	assert.Len(t, plan.Evict, 1)
}

// While the webhook rejects all pods, no controller can replace an evicted pod.
func TestSpec13_3_AnOwnerWithoutPodsHasFailed(t *testing.T) {
	c := newCluster(1)
	for i := range 10 {
		c.addOld(fmt.Sprintf("owner%d", i), 1)
	}
	c.step()
	c.pods = c.pods[:9] // without the replacement
	require.Equal(t, map[string]int{"owner0": 1}, c.evicted)
	for range 200 {
		c.step()
	}
	assert.Equal(t, map[string]int{"owner0": 1}, c.evicted)
	require.Len(t, c.state.Failed, 1)
	assert.Contains(t, c.step().Message, "evictions for SidecarSet logs are halted")
}

// An outage of all processes lasts longer than replacementTimeout.
func TestSpec13_3_AnOutageIsNoFailure(t *testing.T) {
	c := newCluster(1)
	c.unready["a"] = true
	c.addOld("a", 2)
	c.step()
	c.now = c.now.Add(time.Hour)
	assert.Empty(t, c.step().State.Failed)
	for i := range c.pods {
		c.pods[i].Ready = true
	}
	plan := c.step()
	assert.Empty(t, plan.State.Failed)
	assert.Len(t, plan.Evict, 1)
}

// The controller of a StatefulSet creates a replacement only after the evicted pod has ended, so the time for
// the replacement starts when the pod has ended.
func TestSpec13_3_ATerminatingPodHasMoreTime(t *testing.T) {
	c := newCluster(1)
	c.addOld("a", 1)
	plan := c.step()
	evicted := plan.Evict[0].Pods[0].UID
	c.pods = nil
	next := func(terminating bool) protocol.EvictionPlan {
		c.now = c.now.Add(15 * time.Minute)
		c.state.Due = c.now
		return Next(Input{State: c.state, Policy: c.policy, Sets: c.sets, Terminating: map[types.UID]bool{evicted: terminating}, Now: c.now})
	}
	assert.Empty(t, next(true).State.Failed)
	assert.Len(t, next(false).State.Failed, 1)
}

func TestSpec13_1_PodsThatEndByThemselvesAreNotEvicted(t *testing.T) {
	c := newCluster(1)
	c.addOld("a", 1)
	c.pods[0].Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	plan := c.step()
	assert.Empty(t, plan.Evict)
	assert.Equal(t, "1 pod has to be recreated; 1 pod is not evicted: no controller recreates the pods", plan.Message)

	// A TFJob has servers, which run forever, and workers, which run to completion.
	for _, ready := range []bool{true, false} {
		c = newCluster(2)
		server, worker := c.add("TFJob", "train", "logs", true).UID, c.add("TFJob", "train", "logs", ready).UID
		c.pods[1].Spec.RestartPolicy = corev1.RestartPolicyNever
		plan := c.step()
		require.Len(t, plan.Evict, 1)
		assert.Equal(t, server, plan.Evict[0].Pods[0].UID)
		assert.Empty(t, plan.Left)
		c.prove()
		for range 5 {
			for _, e := range c.step().Evict {
				assert.NotEqual(t, worker, e.Pods[0].UID)
			}
		}
	}
}

// The SidecarSet is recreated with the same name between two plans. The new SidecarSet also has generation 1.
func TestSpec13_3_ARecreatedSidecarSetNeedsACanary(t *testing.T) {
	c := newCluster(1)
	c.addOld("a", 3)
	c.addOld("b", 3)
	c.prove()
	c.sets["logs"] = Set{UID: "s2", Generation: 1, MaxUnavailable: 100}
	assert.Len(t, c.step().Evict, 1)
}
