package observer

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// counts contains the counts of the pods of a SidecarSet (SPEC §1, status).
type counts struct{ matched, updated, ready, updatedReady int32 }

// Pending returns the pods and status fields that have not converged.
func (o *Observer) Pending() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var pending []string
	for _, name := range slices.Sorted(maps.Keys(o.sets)) {
		if v := o.sets[name].newest(); !v.gone {
			pending = append(pending, o.pendingOf(v)...)
		}
	}
	return pending
}

func (o *Observer) pendingOf(v *version) (pending []string) {
	var now counts
	for _, p := range o.pods {
		if !p.live() || !v.selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		for _, what := range p.pending(v) {
			pending = append(pending, fmt.Sprintf("SidecarSet %s, pod %s: %s", v.name, p.key(), what))
		}
		if p.injected(v) {
			now.add(p, v)
		}
	}
	status := counts{v.status.MatchedPods, v.status.UpdatedPods, v.status.ReadyPods, v.status.UpdatedReadyPods}
	if status != now || v.status.ObservedGeneration != v.generation {
		pending = append(pending, fmt.Sprintf("SidecarSet %s: status of generation %d has the counts %+v, and the observer has the counts %+v of generation %d",
			v.name, v.status.ObservedGeneration, status, now, v.generation))
	}
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
		active := s.name
		if s.empty != "" {
			active = p.active[s.name]
			if standby := s.standby(p); p.image(standby) != s.empty && !p.crashes() {
				pending = append(pending, fmt.Sprintf("standby %s holds %s", standby, p.image(standby)))
			}
		}
		if p.image(active) != s.image {
			pending = append(pending, fmt.Sprintf("%s holds %s instead of %s", active, p.image(active), s.image))
		}
	}
	if !p.serves(v) {
		pending = append(pending, "not ready")
	}
	return pending
}

// serves reports whether a pod serves with the sidecars of the SidecarSet. If the app of the pod crashes,
// serves reports whether the active sidecars are ready with their images, because a standby twin does not get
// the empty image while the app crashes (SPEC §7.7).
func (p *pod) serves(v *version) bool {
	if !p.crashes() {
		return p.converged(v) && p.ready()
	}
	for _, s := range v.sidecars {
		name := s.name
		if s.empty != "" {
			name = p.active[s.name]
		}
		if !p.runs(name) || !statusOf(p.Pod, name).Ready {
			return false
		}
	}
	return true
}

func (c *counts) add(p *pod, v *version) {
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
}

// NotUpgradable returns the pods that cannot be upgraded in place: pods whose sidecars differ from the
// SidecarSet in more than images, and selected pods without sidecars.
func (o *Observer) NotUpgradable() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []string
	for _, p := range o.pods {
		for _, h := range o.sets {
			v := h.newest()
			if v.gone || !p.live() || !v.selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			if !p.injected(v) || p.blank[v.name] != v.blank {
				found = append(found, p.key())
				break
			}
		}
	}
	slices.Sort(found)
	return found
}
