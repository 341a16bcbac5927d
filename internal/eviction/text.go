package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// plan returns the chosen evictions, the new state, the message, and the time until the next plan.
func (p *planner) plan() protocol.EvictionPlan {
	s := &p.State
	evictable := p.remaining - p.left
	open := evictable > 0 || p.waiting() > 0
	switch {
	case open && s.Since.IsZero():
		s.Since = p.Now
	case !open && p.unknown() == "":
		s.Since = time.Time{}
	}
	plan := protocol.EvictionPlan{State: *s, Evict: p.evict, Remaining: p.remaining, Left: p.leftSets(), Owners: p.candidates, Wait: idleWait}
	if evictable > 0 {
		plan.Wait = remainingWait
	}
	for _, e := range s.InFlight {
		if e.Failed || p.unread(&e) {
			continue
		}
		plan.Wait = min(plan.Wait, max(InFlightWait, p.Now.Sub(e.Since)/2), maxInFlightWait)
	}
	plan.Overdue = Overdue(p.Policy, s.Since, p.Now)
	plan.Message = p.message(plan.Overdue)
	return plan
}

// leftSets returns the sorted names of the SidecarSets whose outdated pods are not recreated by any controller.
// SidecarSets with evictions in flight are omitted. leftSets ignores Pod.Waits, because a pod for which the API
// server does not call the webhook can still be evicted after a change of the webhook.
func (p *planner) leftSets() (left []string) {
	evictable := map[string]bool{}
	for _, of := range p.owners {
		for _, pod := range of.pods {
			for _, set := range pod.Outdated {
				evictable[set] = evictable[set] || of.recreates(pod)
			}
		}
	}
	for _, set := range slices.Sorted(maps.Keys(evictable)) {
		if !evictable[set] && p.podsInFlight(set) == 0 {
			left = append(left, set)
		}
	}
	return left
}

// message describes the remaining pods. message names at most three failed evictions, and at most three
// reasons why pods wait.
func (p *planner) message(overdue bool) string {
	unknown := p.unknown()
	if p.remaining == 0 && len(p.State.InFlight) == 0 && unknown == "" {
		return "no pod has to be recreated"
	}
	parts := []string{counted(p.remaining, "pod has", "pods have") + " to be recreated"}
	if n := p.waiting(); n > 0 {
		parts = append(parts, counted(n, "eviction waits", "evictions wait")+" for a ready replacement")
	}
	if overdue {
		parts = append(parts, "the deadline "+p.Policy.Spec.NotUpgradable.Deadline+" has passed")
	}
	if unknown != "" {
		parts = append(parts, unknown)
	}
	for i := range p.State.Failed {
		if f := &p.State.Failed[i]; i < 3 {
			parts = append(parts, fmt.Sprintf("the eviction of a pod of %s %s/%s for SidecarSet %s has failed: %s", f.Kind, f.Namespace, f.Name, f.SidecarSet, f.Reason))
		}
	}
	reasons := slices.SortedFunc(maps.Keys(p.waits), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.waits[b], p.waits[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		if n := p.waits[reason]; n > 0 && i < 3 {
			parts = append(parts, counted(n, "pod is not evicted", "pods are not evicted")+": "+reason)
		}
	}
	return strings.Join(parts, "; ")
}

// unknown returns the reason why the pods of a SidecarSet could not be read, or "". If the pods of several
// SidecarSets could not be read, unknown returns the reason of the SidecarSet whose name sorts first.
func (p *planner) unknown() string {
	for _, name := range slices.Sorted(maps.Keys(p.Sets)) {
		if set := p.Sets[name]; set.Unknown {
			return set.Waits
		}
	}
	return ""
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Overdue reports whether the deadline of policy has passed (SPEC §13.4.1). since is the start of the deadline,
// or zero if no pod may be evicted.
func Overdue(policy *outriggerv1.RolloutPolicy, since, now time.Time) bool {
	deadline := deadlineOf(policy.Spec.NotUpgradable.Deadline)
	return deadline > 0 && !since.IsZero() && now.Sub(since) >= deadline
}

// deadlineOf parses a deadline such as 14d or 36h. deadlineOf returns 0 if text is not a valid deadline.
func deadlineOf(text string) time.Duration {
	if len(text) < 2 {
		return 0
	}
	n, err := strconv.Atoi(text[:len(text)-1])
	unit := map[byte]time.Duration{'h': time.Hour, 'd': 24 * time.Hour}[text[len(text)-1]]
	if err != nil || n < 1 {
		return 0
	}
	return time.Duration(n) * unit
}

// Written returns the state after the evictions of plan, and the time until the next plan. began is the time at
// which the plan began. Only the pods in result.Evicted are added to the evictions in flight. state.Due is
// based on began, so that a delay during an activity counts as an outage. After each rotation in which the API
// server rejected the evictions of all owners, the time until the next plan doubles, up to idleWait. The time is
// short at first, because a PodDisruptionBudget may not count a ready replacement yet.
//
// Workflows call Written, so a change of its results needs a version marker in package workflows.
func Written(plan *protocol.EvictionPlan, result *protocol.EvictPodsResult, began time.Time) (state protocol.EvictionState, wait time.Duration) {
	state, evicted := plan.State, 0
	state.InFlight = slices.Clone(state.InFlight)
	attempted := 0
	for _, e := range plan.Evict {
		chosen := len(e.Pods)
		if tried(&e, result) {
			// The next plan begins after the last owner whose eviction was attempted, because the activity may
			// not have had time for further owners.
			attempted++
			state.Last = e.Owner.String()
		}
		addRejected(&state, &e, result)
		e.Pods = slices.DeleteFunc(slices.Clone(e.Pods), func(pod protocol.WrittenPod) bool { return !slices.Contains(result.Evicted, pod.UID) })
		if len(e.Pods) == 0 {
			continue
		}
		e.Since = began
		e.Others += chosen - len(e.Pods)
		evicted += len(e.Pods)
		state.InFlight = append(state.InFlight, e)
	}
	state.Evicted += evicted
	wait = plan.Wait
	switch {
	case evicted > 0:
		state.Rejected, state.Rotations = 0, 0
		wait = InFlightWait
	case len(plan.Evict) > 0:
		if state.Rejected += attempted; state.Rejected >= plan.Owners {
			state.Rejected = 0
			state.Rotations++
		}
		wait = min(idleWait, InFlightWait<<min(state.Rotations, 8))
		if len(state.InFlight) > 0 {
			wait = min(wait, plan.Wait)
		}
	}
	state.Due = began.Add(wait)
	return state, wait
}

// addRejected adds the rejected pods of an eviction to the state, in the order of their evictions.
func addRejected(state *protocol.EvictionState, e *protocol.Eviction, result *protocol.EvictPodsResult) {
	list := &state.RejectedReady
	if e.Unready {
		list = &state.RejectedUnready
	}
	rejected := slices.Clone(*list)
	for _, pod := range e.Pods {
		if isRejected(pod.UID, result) {
			rejected = append(rejected, protocol.FingerprintOf(pod.UID))
		}
	}
	*list = rejected
}

func isRejected(pod types.UID, result *protocol.EvictPodsResult) bool {
	return slices.ContainsFunc(result.Rejected, func(r protocol.RejectedPod) bool { return r.UID == pod })
}

// tried reports whether the API server accepted or rejected the eviction of at least one pod of e.
func tried(e *protocol.Eviction, result *protocol.EvictPodsResult) bool {
	return slices.ContainsFunc(e.Pods, func(pod protocol.WrittenPod) bool {
		return slices.Contains(result.Evicted, pod.UID) || isRejected(pod.UID, result)
	})
}
