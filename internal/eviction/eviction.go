// Package eviction decides which pods of a RolloutPolicy are evicted next, so that the controllers of the pods
// recreate the pods with the newest content (SPEC §13). The package has no state and reads no clock.
package eviction

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// maxInFlight limits the evictions that wait for a ready replacement, and therefore the size of the state.
	maxInFlight = 20
	// replacementTimeout is the time limit for a ready replacement. While an evicted pod that was ready
	// terminates, terminationTimeout applies instead, because the controller of a StatefulSet creates the
	// replacement only after the evicted pod has ended. If a plan is late by more than outage, the workers,
	// Temporal or the API server were down, so the delay does not count against these limits.
	replacementTimeout = 10 * time.Minute
	terminationTimeout = time.Hour
	outage             = 2 * time.Minute
	// maxPodsPerEviction limits the pods of one eviction.
	maxPodsPerEviction = 10
	// maxFailed is the number of failed owners at which the evictions for a SidecarSet stop.
	maxFailed = 5
	// maxFailedOfAll is the number of failed owners at which the evictions for all SidecarSets of a policy
	// stop.
	maxFailedOfAll = 100
	// healthyRotations is the number of consecutive rotations after which an owner with unready pods may be the
	// canary. A rotation is one pass over all owners in which the API server rejects every eviction.
	healthyRotations = 3
	statefulSet      = "StatefulSet"
	daemonSet        = "DaemonSet"
)

// These constants determine the time until the next plan. The time is InFlightWait after an eviction, and grows
// with the age of the newest eviction in flight, up to maxInFlightWait. Without evictions in flight, the time
// is remainingWait while pods can be evicted, and otherwise idleWait. After each rotation, the time doubles, up
// to idleWait.
const (
	InFlightWait    = 2 * time.Second
	maxInFlightWait = 20 * time.Second
	remainingWait   = time.Minute
	idleWait        = 5 * time.Minute
)

// Pod is an active pod in the scope of the SidecarSets of a policy.
type Pod struct {
	*corev1.Pod
	Ready bool
	// Outdated names the SidecarSets for which the pod has to be recreated, sorted by name.
	Outdated []string
	// Waits is the reason why an outdated pod must not be evicted, or empty.
	Waits string
}

// Set is a SidecarSet to which the policy applies.
type Set struct {
	UID        types.UID
	Generation int64
	// Hash is the hash of the content. After a restore of etcd, the same generation may have other content.
	Hash string
	// Waits is the reason why no pod may be evicted for the SidecarSet now, or empty. Unknown is set
	// if the pods of the SidecarSet could not be read.
	Waits   string
	Unknown bool
	// Restored is set if etcd was restored. The generations in the state may then be newer than Generation.
	Restored bool
	// MaxUnavailable is maxUnavailable as a number. Unavailable contains the owner of each pod that takes
	// a slot.
	MaxUnavailable int
	Unavailable    []protocol.Owner
}

// otherContent reports whether the SidecarSet has the given generation, but other content than hash. If hash is
// empty, otherContent returns false, because older versions of Outrigger did not record the hash.
func (s Set) otherContent(generation int64, hash string) bool {
	return s.Generation == generation && hash != "" && s.Hash != hash
}

// Input is the input of Next.
type Input struct {
	State  protocol.EvictionState
	Policy *outriggerv1.RolloutPolicy
	Sets   map[string]Set
	Pods   []Pod
	// Terminating contains the pods that are being deleted. TerminatingOf counts terminating pods by owner.
	// Stuck contains the owners with a pod for which IsStuck is true.
	Terminating   map[types.UID]bool
	TerminatingOf map[protocol.Owner]int
	Stuck         map[protocol.Owner]bool
	// Replicas contains the number of replicas of each owner whose replacements are late. Owners with an
	// unknown number of replicas are omitted.
	Replicas map[protocol.Owner]int
	// ReadyOf contains the number of ready pods of each owner in Replicas, including pods that no SidecarSet
	// selects.
	ReadyOf map[protocol.Owner]int
	Now     time.Time
}

// IsStuck reports whether a pod is still terminating long after its grace period, for example because the node
// of the pod was lost.
func IsStuck(pod *corev1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) >= replacementTimeout
}

// Next returns the next evictions of a policy. Before that, Next determines which evictions in flight have
// succeeded or failed.
func Next(in Input) protocol.EvictionPlan {
	p := &planner{Input: in, owners: ownersOf(in.Pods), waits: map[string]int{}}
	p.order()
	p.prune()
	p.judge()
	p.choose()
	return p.plan()
}

type planner struct {
	Input
	owners []*owner
	evict  []protocol.Eviction
	// remaining counts the pods that have to be recreated. left counts the remaining pods that must not be
	// evicted.
	remaining, left int
	// candidates counts the pairs of an owner and a SidecarSet whose pods may be evicted in this rotation.
	candidates int
	// waits counts the remaining pods by the reason why the pods are not evicted now.
	waits map[string]int
}

// prune removes obsolete entries from the state. A change of the policy, or a new generation of a SidecarSet,
// permits another attempt. After an outage, prune extends the time limits of the evictions in flight by the
// duration of the outage.
func (p *planner) prune() {
	s := &p.State
	s.InFlight, s.Failed = slices.Clone(s.InFlight), slices.Clone(s.Failed)
	before := len(s.Proven) + len(s.Failed)
	if s.PolicyGeneration != p.Policy.Generation {
		s.PolicyGeneration, s.Failed, s.Proven = p.Policy.Generation, nil, nil
		before = -1
	}
	// The cache of the worker may be stale, so an entry of a newer generation is kept. After a restore of etcd,
	// an entry of a newer generation is removed.
	current := func(set string, uid types.UID, generation int64) bool {
		known, ok := p.Sets[set]
		return ok && known.UID == uid && (known.Generation == generation || known.Generation < generation && !known.Restored)
	}
	s.Proven = slices.DeleteFunc(slices.Clone(s.Proven), func(c protocol.ProvenContent) bool {
		return !current(c.SidecarSet.Name, c.SidecarSet.UID, c.Generation) || p.Sets[c.SidecarSet.Name].otherContent(c.Generation, c.Hash)
	})
	s.Failed = slices.DeleteFunc(s.Failed, func(f outriggerv1.FailedEviction) bool {
		return !current(f.SidecarSet, f.SidecarSetUID, f.Generation) || p.Sets[f.SidecarSet].otherContent(f.Generation, f.Hash)
	})
	if len(s.Proven)+len(s.Failed) != before {
		s.Rejected, s.Rotations = 0, 0
	}
	if late := p.Now.Sub(s.Due); !s.Due.IsZero() && late > outage {
		for i := range s.InFlight {
			e := &s.InFlight[i]
			if e.Since = e.Since.Add(late); !e.Terminating.IsZero() {
				e.Terminating = e.Terminating.Add(late)
			}
		}
	}
}

// choose selects the pods to evict, one owner at a time. choose begins after the owner that was chosen last, so
// that an owner whose evictions are rejected does not block other owners.
func (p *planner) choose() {
	first := slices.IndexFunc(p.owners, func(o *owner) bool { return o.key > p.State.Last })
	rotated := p.owners
	if first > 0 {
		rotated = slices.Concat(p.owners[first:], p.owners[:first])
	}
	for _, of := range rotated {
		bySet, names := p.outdated(of)
		for _, set := range names {
			pods := bySet[set]
			p.remaining += len(pods)
			pods = slices.DeleteFunc(pods, func(pod *Pod) bool {
				why := pod.Waits
				if why == "" && !of.recreates(pod) {
					why = "no controller recreates the pods"
				}
				if why != "" {
					p.left++
					p.waits[why]++
				}
				return why != ""
			})
			if len(pods) == 0 {
				continue
			}
			chosen, why := p.chooseOf(of, set, pods)
			if why != "" {
				p.waits[why] += len(pods) - len(chosen)
			}
			if len(chosen) > 0 {
				p.take(of, set, chosen)
			}
			if p.candidate(of, set, pods) {
				p.candidates++
			}
		}
	}
}

// outdated returns the outdated pods of an owner, grouped by the SidecarSet for which the pods are evicted,
// and the sorted names of these SidecarSets.
func (p *planner) outdated(of *owner) (bySet map[string][]*Pod, names []string) {
	bySet = map[string][]*Pod{}
	for _, pod := range of.pods {
		if name := p.evictedFor(pod); name != "" {
			bySet[name] = append(bySet[name], pod)
		}
	}
	return bySet, slices.Sorted(maps.Keys(bySet))
}

// evictedFor returns the first SidecarSet in pod.Outdated whose evictions neither wait nor are halted. If
// no SidecarSet qualifies, evictedFor returns the first SidecarSet in pod.Outdated, or "" if pod.Outdated
// is empty.
func (p *planner) evictedFor(pod *Pod) string {
	for _, name := range pod.Outdated {
		if p.Sets[name].Waits == "" && !p.halted(name) {
			return name
		}
	}
	if len(pod.Outdated) == 0 {
		return ""
	}
	return pod.Outdated[0]
}

// candidate reports whether pods of an owner may be evicted for a SidecarSet as soon as other evictions end. If
// another owner is a better canary, or maxUnavailablePerOwner has no slot, the owner is not part of the current
// rotation.
func (p *planner) candidate(of *owner, set string, pods []*Pod) bool {
	if p.Sets[set].Waits != "" || p.failed(of.Owner) || p.halted(set) || !p.proven(set) && p.betterCanary(of, set) {
		return false
	}
	return len(p.limitPerOwner(of, pods, 1)) > 0
}

// betterCanary reports whether the canary of a SidecarSet should be a pod of another owner. After
// healthyRotations rotations, a pod of any owner may be the canary.
func (p *planner) betterCanary(of *owner, set string) bool {
	return p.State.Rotations < healthyRotations && p.healthier(of, set)
}

// healthier reports whether the owner has unready pods, while another owner with outdated pods has only ready
// pods. A pod of an owner with only ready pods is the better canary, because an app that crashes with any
// content is no evidence about the newest content.
func (p *planner) healthier(of *owner, set string) bool {
	return !of.healthy() && slices.ContainsFunc(p.owners, func(other *owner) bool {
		if !other.healthy() || p.failed(other.Owner) || p.Stuck[other.Owner] {
			return false
		}
		return slices.ContainsFunc(other.pods, func(pod *Pod) bool { return p.evictedFor(pod) == set && pod.Waits == "" && other.recreates(pod) })
	})
}

// chooseOf returns the elements of pods that are evicted now, and the reason why the remaining pods wait.
func (p *planner) chooseOf(of *owner, name string, pods []*Pod) (chosen []*Pod, why string) {
	set := p.Sets[name]
	proven := p.proven(name)
	switch {
	case set.Waits != "":
		return nil, set.Waits
	case p.failed(of.Owner):
		return nil, "an eviction of their owner has failed"
	case p.halted(name):
		return nil, "evictions for SidecarSet " + name + " are halted"
	case p.inFlight(of.Owner):
		return nil, "the replacement of another pod of their owner is not ready"
	case !proven && (p.podsInFlight(name) > 0 || p.betterCanary(of, name)):
		return nil, "the first eviction for SidecarSet " + name + " has no ready replacement yet"
	case p.waiting() >= maxInFlight:
		return nil, "other replacements are not ready"
	}
	slots := p.slots(name, set)
	if slots == 0 {
		return nil, noSlot
	}
	good, _ := of.good(name, true, time.Time{})
	first := good == 0 || !proven
	if first {
		slots = 1
	}
	chosen = p.limitPerOwner(of, pods, slots)
	return chosen, p.limiting(len(chosen), slots, first)
}

// limiting returns the name of the limit that prevents the eviction of further pods of an owner. pods is the
// number of chosen pods. slots is the number of slots of maxUnavailable. first is set if the owner has no
// replacement with the newest content yet.
func (p *planner) limiting(pods, slots int, first bool) string {
	switch {
	case pods == 0:
	case first && p.perOwner() > 1:
		return "the first eviction of their owner has no ready replacement yet"
	case pods == maxPodsPerEviction:
		return fmt.Sprintf("an eviction has at most %d pods", maxPodsPerEviction)
	case pods == slots && slots < p.perOwner():
		return noSlot
	}
	return "maxUnavailablePerOwner has no slot"
}

const noSlot = "maxUnavailable has no slot"

func (p *planner) perOwner() int {
	return max(int(p.Policy.Spec.NotUpgradable.MaxUnavailablePerOwner), 1)
}

// limitPerOwner returns the pods that may be evicted now, at most slots. pods begins with the unready pods. The
// eviction of an unready pod makes no further pod unavailable, so unready pods are evicted before ready pods,
// and never together with ready pods.
func (p *planner) limitPerOwner(of *owner, pods []*Pod, slots int) []*Pod {
	limit := p.perOwner()
	most := min(slots, limit, maxPodsPerEviction)
	unready := 0
	for unready < len(pods) && !pods[unready].Ready {
		unready++
	}
	if unready > 0 {
		return pods[:min(unready, most)]
	}
	for _, pod := range of.pods {
		if !pod.Ready {
			limit--
		}
	}
	if of.Kind == statefulSet || of.Kind == daemonSet {
		// The controllers of StatefulSets and DaemonSets replace a pod only after the pod has ended.
		limit -= p.TerminatingOf[of.Owner]
	}
	return pods[:max(min(len(pods), most, limit), 0)]
}

func (p *planner) failed(of protocol.Owner) bool {
	return slices.ContainsFunc(p.State.Failed, func(f outriggerv1.FailedEviction) bool {
		return protocol.Owner{Namespace: f.Namespace, Kind: f.Kind, Name: f.Name} == of
	})
}

func (p *planner) inFlight(of protocol.Owner) bool {
	same := func(e protocol.Eviction) bool { return e.Owner == of }
	return slices.ContainsFunc(p.State.InFlight, same) || slices.ContainsFunc(p.evict, same)
}

// waiting returns the number of evictions that wait for a ready replacement and have not failed.
func (p *planner) waiting() int {
	failed := 0
	for _, e := range p.State.InFlight {
		if e.Failed {
			failed++
		}
	}
	return len(p.State.InFlight) - failed + len(p.evict)
}

// podsInFlight returns the number of pods of a SidecarSet whose evictions are in flight.
func (p *planner) podsInFlight(set string) (n int) {
	for _, e := range slices.Concat(p.State.InFlight, p.evict) {
		if e.SidecarSet.Name == set {
			n += len(e.Pods)
		}
	}
	return n
}

// slots returns the number of further pods of a SidecarSet that may become unavailable. An unready replacement
// takes no further slot, because its eviction in flight already takes a slot.
func (p *planner) slots(name string, set Set) int {
	used := p.podsInFlight(name)
	for _, of := range set.Unavailable {
		if !p.inFlight(of) {
			used++
		}
	}
	return max(set.MaxUnavailable-used, 0)
}

func (p *planner) take(of *owner, set string, pods []*Pod) {
	e := protocol.Eviction{SidecarSet: protocol.SetReference{Name: set, UID: p.Sets[set].UID}, Generation: p.Sets[set].Generation, Hash: p.Sets[set].Hash, Owner: of.Owner, Unready: !pods[0].Ready, Since: p.Now}
	if controller := metav1.GetControllerOfNoCopy(pods[0].Pod); controller != nil {
		e.Controller = protocol.Controller{APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name}
	}
	for _, pod := range pods {
		reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		e.Pods = append(e.Pods, protocol.WrittenPod{PodReference: reference, ResourceVersion: pod.ResourceVersion})
	}
	e.Newest = of.newest()
	for _, pod := range of.pods {
		if pod.outdated(set) && !contains(e.Pods, pod.UID) {
			e.Others++
		}
	}
	e.Good, _ = of.good(set, !e.Unready, e.Newest)
	p.evict = append(p.evict, e)
	p.State.Last = of.key
}
