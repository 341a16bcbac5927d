// Package eviction decides which pods of a RolloutPolicy are evicted next, so that their controllers
// recreate them with the newest content (SPEC §13). It has no state and reads no clock.
package eviction

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// maxInFlight limits the owners that wait for a replacement. It limits the size of the state.
	maxInFlight = 20
	// replacementTimeout is the time within which a replacement has to be ready.
	replacementTimeout = 10 * time.Minute
	// maxFailed is the number of failed owners at which the evictions for a SidecarSet stop.
	maxFailed = 5
	// maxFailedOfAll limits the failed owners of all SidecarSets of a policy.
	maxFailedOfAll = 100
)

// These are the times until the next plan. InFlightWait is the time after an eviction. It grows with
// the age of the newest eviction, up to maxInFlightWait.
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
	// Outdated names the SidecarSet for which the pod has to be recreated. It is empty for other pods.
	Outdated string
	// Waits is the reason for which this outdated pod is never evicted, or empty. It is the same for all
	// pods of an owner.
	Waits string
}

// Set is a SidecarSet of the policy.
type Set struct {
	UID        types.UID
	Generation int64
	// Waits is the reason for which no pod may be evicted for the SidecarSet now, or empty.
	Waits string
	// MaxUnavailable is maxUnavailable as a number. Unavailable contains the uid of the controller of
	// each pod that takes a slot.
	MaxUnavailable int
	Unavailable    []types.UID
}

// Input is the input of Next.
type Input struct {
	State  protocol.EvictionState
	Policy *outriggerv1.RolloutPolicy
	Sets   map[string]Set
	Pods   []Pod
	Now    time.Time
}

// Next returns the next evictions of a policy. It first judges the evictions in flight by the pods
// that have replaced the evicted pods.
func Next(in Input) protocol.EvictionPlan {
	p := &planner{Input: in, owners: ownersOf(in.Pods), waits: map[string]int{}}
	p.prune()
	p.judge()
	p.choose()
	return p.plan()
}

type planner struct {
	Input
	owners []*owner
	evict  []protocol.Eviction
	// remaining counts the pods that have to be recreated. left counts those of them that are never
	// evicted.
	remaining, left int
	// waits counts the remaining pods by the reason for which they are not evicted now.
	waits map[string]int
}

// owner contains the pods of one controller.
type owner struct {
	protocol.Owner
	key  string
	pods []*Pod
}

func ownersOf(pods []Pod) []*owner {
	byUID := map[types.UID]*owner{}
	var owners []*owner
	for i := range pods {
		controller := metav1.GetControllerOfNoCopy(pods[i].Pod)
		if controller == nil {
			controller = &metav1.OwnerReference{Name: pods[i].Name, UID: pods[i].UID}
		}
		of := byUID[controller.UID]
		if of == nil {
			of = &owner{Owner: protocol.Owner{Namespace: pods[i].Namespace, Kind: controller.Kind, Name: controller.Name, UID: controller.UID}}
			of.key = of.String()
			byUID[controller.UID] = of
			owners = append(owners, of)
		}
		of.pods = append(of.pods, &pods[i])
	}
	slices.SortFunc(owners, func(a, b *owner) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.UID, b.UID)) })
	for _, of := range owners {
		slices.SortFunc(of.pods, func(a, b *Pod) int {
			return cmp.Or(compareBool(a.Ready, b.Ready), strings.Compare(a.Name, b.Name))
		})
	}
	return owners
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// recreates reports whether the controller creates another pod after an eviction, and the eviction
// loses no work. A Job starts its work again, and a node does not recreate the mirror of a static pod.
func (o *owner) recreates() bool { return o.Kind != "" && o.Kind != "Job" && o.Kind != "Node" }

// good counts the ready pods of the owner with the newest content. newer counts those of them that
// were created after a time of the API server.
func (o *owner) good(after time.Time) (good, newer int) {
	for _, pod := range o.pods {
		if pod.Outdated != "" || !pod.Ready {
			continue
		}
		good++
		if pod.CreationTimestamp.After(after) {
			newer++
		}
	}
	return good, newer
}

// worse returns a pod that has replaced an evicted pod, and that has to be recreated, too. Times of
// the API server are whole seconds, so that a replacement may be as old as the newest other pod. It
// then increases the number of pods that have to be recreated.
func (o *owner) worse(e *protocol.Eviction) *Pod {
	var found *Pod
	n := 0
	for _, pod := range o.pods {
		if pod.Outdated != e.SidecarSet.Name || contains(e.Pods, pod.UID) {
			continue
		}
		if n++; found == nil || pod.CreationTimestamp.After(found.CreationTimestamp.Time) {
			found = pod
		}
	}
	if n > e.Others || found != nil && found.CreationTimestamp.After(e.Newest) {
		return found
	}
	return nil
}

// newest returns the time at which the newest pod of the owner was created.
func (o *owner) newest() (at time.Time) {
	for _, pod := range o.pods {
		if pod.CreationTimestamp.After(at) {
			at = pod.CreationTimestamp.Time
		}
	}
	return at
}

func contains(pods []protocol.WrittenPod, uid types.UID) bool {
	return slices.ContainsFunc(pods, func(pod protocol.WrittenPod) bool { return pod.UID == uid })
}

// prune drops the parts of the state that do not apply any more. A change of the policy, and a new
// generation of a SidecarSet, permit another attempt.
func (p *planner) prune() {
	s := &p.State
	s.InFlight, s.Failed = slices.Clone(s.InFlight), slices.Clone(s.Failed)
	proven := map[string]int64{}
	if s.PolicyGeneration != p.Policy.Generation {
		s.PolicyGeneration, s.Failed, s.Proven = p.Policy.Generation, nil, nil
	}
	for name, generation := range s.Proven {
		if p.Sets[name].Generation == generation {
			proven[name] = generation
		}
	}
	s.Proven = proven
	s.Failed = slices.DeleteFunc(s.Failed, func(f outriggerv1.FailedEviction) bool { return p.Sets[f.SidecarSet].Generation != f.Generation })
}

// judge decides about the evictions in flight. An eviction is over once its replacements are ready
// with the newest content, and it has failed if a replacement has to be recreated, too, or is not
// ready in time.
func (p *planner) judge() {
	s := &p.State
	s.InFlight = slices.DeleteFunc(s.InFlight, func(e protocol.Eviction) bool {
		i := slices.IndexFunc(p.owners, func(o *owner) bool { return o.UID == e.Owner.UID })
		late := p.Now.Sub(e.Since) >= replacementTimeout
		if i < 0 {
			return late // the owner is deleted, or scaled to zero
		}
		of := p.owners[i]
		if slices.ContainsFunc(of.pods, func(pod *Pod) bool { return contains(e.Pods, pod.UID) }) {
			return late // the eviction was lost
		}
		good, newer := of.good(e.Newest)
		switch worse := of.worse(&e); {
		case worse != nil:
			p.fail(e, "its new pod "+worse.Name+" lacks the newest content, too")
		case newer >= len(e.Pods), good >= e.Good+len(e.Pods):
			s.Proven[e.SidecarSet.Name] = e.Generation
		case late:
			p.fail(e, "no new pod with the newest content was ready within "+replacementTimeout.String())
		default:
			return false
		}
		return true
	})
}

func (p *planner) fail(e protocol.Eviction, reason string) {
	if p.Sets[e.SidecarSet.Name].Generation != e.Generation || len(p.State.Failed) >= maxFailedOfAll {
		return
	}
	p.State.Failed = append(p.State.Failed, outriggerv1.FailedEviction{
		SidecarSet: e.SidecarSet.Name, Generation: e.Generation, Namespace: e.Owner.Namespace, Kind: e.Owner.Kind, Name: e.Owner.Name, UID: e.Owner.UID, Reason: reason,
	})
}

// halted reports whether the evictions for a SidecarSet have stopped. A first failure stops them
// unless an earlier eviction gave a better pod.
func (p *planner) halted(set string) bool {
	failed := 0
	for i := range p.State.Failed {
		if p.State.Failed[i].SidecarSet == set {
			failed++
		}
	}
	_, proven := p.State.Proven[set]
	return failed >= maxFailed || failed > 0 && !proven || len(p.State.Failed) >= maxFailedOfAll
}

// choose selects pods, owner after owner. It begins with the owner after the last chosen one, so that
// an owner whose evictions are rejected does not stop other owners.
func (p *planner) choose() {
	first := slices.IndexFunc(p.owners, func(o *owner) bool { return o.key > p.State.Last })
	rotated := p.owners
	if first > 0 {
		rotated = slices.Concat(p.owners[first:], p.owners[:first])
	}
	for _, of := range rotated {
		for set, pods := range of.outdated() {
			p.remaining += len(pods)
			chosen, why := p.chooseOf(of, set, pods)
			if why != "" {
				p.waits[why] += len(pods) - len(chosen)
			}
			if len(chosen) > 0 {
				p.take(of, set, chosen)
			}
		}
	}
}

// outdated yields the outdated pods of an owner by SidecarSet, in the order of the names.
func (o *owner) outdated() func(yield func(string, []*Pod) bool) {
	bySet := map[string][]*Pod{}
	var names []string
	for _, pod := range o.pods {
		if pod.Outdated == "" {
			continue
		}
		if bySet[pod.Outdated] == nil {
			names = append(names, pod.Outdated)
		}
		bySet[pod.Outdated] = append(bySet[pod.Outdated], pod)
	}
	slices.Sort(names)
	return func(yield func(string, []*Pod) bool) {
		for _, name := range names {
			if !yield(name, bySet[name]) {
				return
			}
		}
	}
}

// chooseOf returns the pods of an owner that are evicted now, or the reason for which other pods wait.
func (p *planner) chooseOf(of *owner, name string, pods []*Pod) (chosen []*Pod, why string) {
	set := p.Sets[name]
	_, proven := p.State.Proven[name]
	switch {
	case !of.recreates():
		p.left += len(pods)
		return nil, "no controller recreates them"
	case pods[0].Waits != "":
		p.left += len(pods)
		return nil, pods[0].Waits
	case set.Waits != "":
		return nil, set.Waits
	case p.failed(of.UID):
		return nil, "an eviction of their owner has failed"
	case p.halted(name):
		return nil, "evictions for SidecarSet " + name + " are halted"
	case p.inFlight(of.UID):
		return nil, "the replacement of another pod of their owner is not ready"
	case !proven && p.flying(name) > 0:
		return nil, "the first eviction for SidecarSet " + name + " is not proven"
	case len(p.State.InFlight)+len(p.evict) >= maxInFlight:
		return nil, "other replacements are not ready"
	}
	slots := p.slots(name, set)
	if slots == 0 {
		return nil, "maxUnavailable has no slot"
	}
	if good, _ := of.good(time.Time{}); good == 0 || !proven {
		slots = 1
	}
	return p.limitPerOwner(of, pods, slots), "maxUnavailablePerOwner has no slot"
}

// limitPerOwner returns the pods that may become unavailable. An unready pod is unavailable already.
func (p *planner) limitPerOwner(of *owner, pods []*Pod, slots int) (chosen []*Pod) {
	limit := max(int(p.Policy.Spec.NotUpgradable.MaxUnavailablePerOwner), 1)
	ready := limit
	for _, pod := range of.pods {
		if !pod.Ready {
			ready--
		}
	}
	for _, pod := range pods {
		switch {
		case len(chosen) >= min(slots, limit):
			return chosen
		case !pod.Ready:
			chosen = append(chosen, pod)
		case ready > 0:
			ready--
			chosen = append(chosen, pod)
		}
	}
	return chosen
}

func (p *planner) failed(uid types.UID) bool {
	return slices.ContainsFunc(p.State.Failed, func(f outriggerv1.FailedEviction) bool { return f.UID == uid })
}

func (p *planner) inFlight(uid types.UID) bool {
	of := func(e protocol.Eviction) bool { return e.Owner.UID == uid }
	return slices.ContainsFunc(p.State.InFlight, of) || slices.ContainsFunc(p.evict, of)
}

// flying returns the number of pods of a SidecarSet whose evictions are in flight.
func (p *planner) flying(set string) (n int) {
	for _, e := range slices.Concat(p.State.InFlight, p.evict) {
		if e.SidecarSet.Name == set {
			n += len(e.Pods)
		}
	}
	return n
}

// slots returns the number of further pods of a SidecarSet that may become unavailable. A replacement
// that is not ready takes the slot of its eviction.
func (p *planner) slots(name string, set Set) int {
	used := p.flying(name)
	for _, controller := range set.Unavailable {
		if !p.inFlight(controller) {
			used++
		}
	}
	return max(set.MaxUnavailable-used, 0)
}

func (p *planner) take(of *owner, set string, pods []*Pod) {
	e := protocol.Eviction{SidecarSet: protocol.SetReference{Name: set, UID: p.Sets[set].UID}, Generation: p.Sets[set].Generation, Owner: of.Owner, Since: p.Now}
	for _, pod := range pods {
		reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		e.Pods = append(e.Pods, protocol.WrittenPod{PodReference: reference, ResourceVersion: pod.ResourceVersion})
	}
	e.Newest = of.newest()
	for _, pod := range of.pods {
		if pod.Outdated == set && !contains(e.Pods, pod.UID) {
			e.Others++
		}
	}
	e.Good, _ = of.good(e.Newest)
	p.evict = append(p.evict, e)
	p.State.Last = of.key
}
