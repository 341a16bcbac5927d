package observer

import (
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// counts contains the counts of the pods of a SidecarSet (SPEC §1, status).
type counts struct{ matched, updated, ready, updatedReady int32 }

// selected returns the live pods that each SidecarSet selects.
func (o *Observer) selected() iter.Seq2[*version, *pod] {
	return func(yield func(*version, *pod) bool) {
		for _, h := range o.sets {
			for _, p := range o.pods {
				if v := h.newest(); !v.gone && p.live() && v.selector.Matches(labels.Set(p.Labels)) && !yield(v, p) {
					return
				}
			}
		}
	}
}

// Pending returns the pods and status fields that have not converged.
func (o *Observer) Pending() (pending []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[*version]counts{}
	for v, p := range o.selected() {
		for _, what := range p.pending(v) {
			pending = append(pending, fmt.Sprintf("SidecarSet %s, pod %s: %s", v.name, p.key(), what))
		}
		if p.injected(v) {
			found[v] = found[v].with(p, v)
		}
	}
	for _, h := range o.sets {
		v := h.newest()
		status := counts{v.status.MatchedPods, v.status.UpdatedPods, v.status.ReadyPods, v.status.UpdatedReadyPods}
		if !v.gone && (status != found[v] || v.status.ObservedGeneration != v.generation) {
			pending = append(pending, fmt.Sprintf("SidecarSet %s: status of generation %d has the counts %+v, and the observer has the counts %+v of generation %d",
				v.name, v.status.ObservedGeneration, status, found[v], v.generation))
		}
	}
	slices.Sort(pending)
	return pending
}

// pending returns the differences between a selected pod and its SidecarSet.
func (p *pod) pending(v *version) (pending []string) {
	if !p.injected(v) {
		return []string{"selected and not injected"}
	}
	if p.Labels[RejectedLabel] != "" {
		return nil
	}
	if p.hashes[v.name] != v.hash {
		pending = append(pending, "not updated")
	}
	for _, s := range v.sidecars {
		if standby := s.standby(p); s.empty != "" && p.image(standby) != s.empty && !p.crashes() {
			pending = append(pending, fmt.Sprintf("standby %s holds %s", standby, p.image(standby)))
		}
		if active := p.serving(s); p.image(active) != s.image {
			pending = append(pending, fmt.Sprintf("%s holds %s instead of %s", active, p.image(active), s.image))
		}
	}
	if !p.serves(v) {
		pending = append(pending, "not ready")
	}
	return pending
}

// serves reports whether a pod serves with the sidecars of the SidecarSet. If the app of the pod crashes,
// serves reports whether the active sidecars are ready with their images, because a standby twin is not reset
// while the app crashes (SPEC §7.7).
func (p *pod) serves(v *version) bool {
	if !p.crashes() {
		return p.converged(v) && p.ready()
	}
	for _, s := range v.sidecars {
		if name := p.serving(s); !p.runs(name) || !statusOf(p.Pod, name).Ready {
			return false
		}
	}
	return true
}

func (c counts) with(p *pod, v *version) counts {
	emptied := true
	for _, s := range v.sidecars {
		emptied = emptied && (s.empty == "" || p.image(s.standby(p)) == s.empty)
	}
	updated, ready := p.hashes[v.name] == v.hash, p.ready() && emptied
	c.matched++
	if updated {
		c.updated++
	}
	if ready {
		c.ready++
	}
	if updated && ready && p.converged(v) {
		c.updatedReady++
	}
	return c
}

// NotUpgradable returns the pods that cannot be upgraded in place: pods whose sidecars differ from the
// SidecarSet in more than images, and selected pods without sidecars.
func (o *Observer) NotUpgradable() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []string
	for v, p := range o.selected() {
		if !p.injected(v) || p.blank[v.name] != v.blank {
			found = append(found, p.key())
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
