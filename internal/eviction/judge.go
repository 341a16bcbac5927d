package eviction

import (
	"slices"
	"time"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// judge determines which evictions in flight have succeeded or failed. An eviction has succeeded once its
// replacements are ready with the newest content. An eviction has failed if a replacement is outdated, too, or
// is not ready in time. The replacement of an unready pod need not be ready. A failed eviction without a ready
// replacement keeps its slots.
func (p *planner) judge() {
	inFlight := p.State.InFlight[:0]
	for _, e := range p.State.InFlight {
		if p.unread(&e) {
			e.Since = p.Now // the time limit starts again
		} else if !p.open(&e) {
			continue
		}
		inFlight = append(inFlight, e)
	}
	p.State.InFlight = inFlight
}

// unread reports whether the worker cannot judge an eviction, because the worker could not read the pods of the
// SidecarSet, or because the cache of the worker contains an older generation.
func (p *planner) unread(e *protocol.Eviction) bool {
	set, known := p.Sets[e.SidecarSet.Name]
	return known && set.UID == e.SidecarSet.UID && (set.Unknown || set.Generation < e.Generation && !set.Restored)
}

// open judges one eviction, and reports whether the eviction remains in flight.
func (p *planner) open(e *protocol.Eviction) bool {
	of := &owner{} // an owner without pods
	if i := slices.IndexFunc(p.owners, func(o *owner) bool { return o.Owner == e.Owner }); i >= 0 {
		of = p.owners[i]
	}
	terminating := slices.ContainsFunc(e.Pods, func(pod protocol.WrittenPod) bool { return p.Terminating[pod.UID] })
	timeout, late := p.late(e, terminating)
	if slices.ContainsFunc(of.pods, func(pod *Pod) bool { return contains(e.Pods, pod.UID) }) {
		return !late // after the timeout, a pod that is still active was not evicted
	}
	good, newer := of.good(e.SidecarSet.Name, !e.Unready, e.Newest)
	switch worse := of.worse(e); {
	case e.Failed && !p.failed(e.Owner):
		return false
	case worse != nil:
		p.fail(e, "its new pod "+worse.Name+" lacks the newest content, too")
		e.Failed = p.failed(e.Owner)
		return e.Failed && !worse.Ready
	case newer >= len(e.Pods), good >= e.Good+len(e.Pods):
		p.prove(e)
	case p.scaledDown(e.Owner):
	case e.Failed:
		return true
	case late && terminating && e.Unready:
		// The node of the evicted pod is probably lost, so the missing replacement is no evidence about the
		// newest content.
	case late:
		p.fail(e, "no new pod with the newest content was ready within "+timeout.String())
		e.Failed = p.failed(e.Owner)
		return e.Failed
	default:
		return true
	}
	return false
}

// late returns the time limit for the replacements, and reports whether the limit has expired. The time starts
// again when the evicted pods have ended, because the controller of a StatefulSet creates a replacement only
// after the evicted pod has ended.
func (p *planner) late(e *protocol.Eviction, terminating bool) (timeout time.Duration, late bool) {
	timeout, since := replacementTimeout, e.Since
	if terminating {
		e.Terminating = p.Now
		if !e.Unready {
			timeout = terminationTimeout
		}
	} else if e.Terminating.After(since) {
		since = e.Terminating
	}
	return timeout, p.Now.Sub(since) >= timeout
}

// scaledDown reports whether an owner needs no replacement, because the owner has at least as many ready
// pods as replicas. An owner that does not exist has 0 replicas.
func (p *planner) scaledDown(name protocol.Owner) bool {
	replicas, known := p.Replicas[name]
	return known && p.ReadyOf[name] >= replicas
}

// NewestGeneration returns the newest generation of a SidecarSet in the state, or 0.
func NewestGeneration(state *protocol.EvictionState, set protocol.SetReference) (newest int64) {
	for i := range state.InFlight {
		if e := &state.InFlight[i]; e.SidecarSet == set {
			newest = max(newest, e.Generation)
		}
	}
	for i := range state.Proven {
		if c := &state.Proven[i]; c.SidecarSet == set {
			newest = max(newest, c.Generation)
		}
	}
	for i := range state.Failed {
		if f := &state.Failed[i]; f.SidecarSet == set.Name && f.SidecarSetUID == set.UID {
			newest = max(newest, f.Generation)
		}
	}
	return newest
}

// Late returns the evictions that have been in flight for at least replacementTimeout.
func Late(state *protocol.EvictionState, now time.Time) (late []protocol.Eviction) {
	for _, e := range state.InFlight {
		if now.Sub(e.Since) >= replacementTimeout {
			late = append(late, e)
		}
	}
	return late
}

// prove records that an eviction for the newest content of a SidecarSet has succeeded. prove ignores an
// eviction for other content, and an eviction that failed before.
func (p *planner) prove(e *protocol.Eviction) {
	if !e.Failed && p.newest(e) && !p.proven(e.SidecarSet.Name) {
		p.State.Proven = append(p.State.Proven, protocol.ProvenContent{SidecarSet: e.SidecarSet, Generation: e.Generation, Hash: e.Hash})
	}
}

// newest reports whether an eviction is for the newest content of its SidecarSet.
func (p *planner) newest(e *protocol.Eviction) bool {
	set := p.Sets[e.SidecarSet.Name]
	return set.Generation == e.Generation && set.UID == e.SidecarSet.UID && !set.otherContent(e.Generation, e.Hash)
}

func (p *planner) fail(e *protocol.Eviction, reason string) {
	if e.Failed || !p.newest(e) || len(p.State.Failed) >= maxFailedOfAll {
		return
	}
	p.State.Failed = append(p.State.Failed, outriggerv1.FailedEviction{
		SidecarSet: e.SidecarSet.Name, SidecarSetUID: e.SidecarSet.UID, Generation: e.Generation, Hash: e.Hash, Namespace: e.Owner.Namespace, Kind: e.Owner.Kind, Name: e.Owner.Name, Reason: reason,
	})
}

// halted reports whether failures have stopped the evictions for a SidecarSet. The first failure stops the
// evictions if no eviction for the SidecarSet has succeeded. Otherwise, maxFailed failures stop the evictions.
// maxFailedOfAll failures stop the evictions for all SidecarSets.
func (p *planner) halted(set string) bool {
	failed := 0
	for i := range p.State.Failed {
		if p.State.Failed[i].SidecarSet == set {
			failed++
		}
	}
	return failed >= maxFailed || failed > 0 && !p.proven(set) || len(p.State.Failed) >= maxFailedOfAll
}

// proven reports whether an eviction for the newest content of the SidecarSet has succeeded. prune has removed
// the entries for older content.
func (p *planner) proven(set string) bool {
	return slices.ContainsFunc(p.State.Proven, func(c protocol.ProvenContent) bool { return c.SidecarSet.Name == set })
}
