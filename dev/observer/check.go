package observer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// injectedEnv marks injected containers (SPEC §2).
const injectedEnv = "IS_INJECTED"

func isInjected(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == injectedEnv })
}

// checkApp checks that containers other than sidecars keep their images and are not restarted (SPEC §7.6). A
// container that crashes may be restarted.
func (o *Observer) checkApp(e event, p *pod) {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if isInjected(c) {
			continue
		}
		if p.created[c.Name] != c.Image {
			o.fail(e, p, "app", "", fmt.Sprintf("container %s was created with %s and has %s", c.Name, p.created[c.Name], c.Image))
		}
		if status := statusOf(p.Pod, c.Name); status.RestartCount > 0 && !crashLoops(status) {
			o.fail(e, p, "app", "", fmt.Sprintf("container %s was restarted %d times", c.Name, status.RestartCount))
		}
	}
}

// checkSet checks an event of a pod against one SidecarSet.
func (o *Observer) checkSet(e event, h *history, before, now *pod) {
	v := h.newest()
	written := before.hashes[v.name] != now.hashes[v.name]
	if !v.gone {
		o.checkTwins(e, v, before, now, written)
	}
	tookSlot := follow(e, v, before, now, written)
	if !written {
		return
	}
	o.totals.Upgrades++
	if e.seen.Sub(o.known(e.seen)) <= strictTime {
		o.totals.Strict++
	}
	o.checkFence(e, h, now)
	o.checkPause(e, v, now)
	o.checkPartition(e, h, now)
	if tookSlot {
		o.checkBound(e, h, now)
	}
}

// follow records the upgrades that make the pod unavailable, and reports whether this write uses a slot. A
// write uses a slot if the pod served before the write, and no earlier write uses a slot for the pod.
func follow(e event, v *version, before, now *pod, written bool) (tookSlot bool) {
	started, inProgress := now.upgrades[v.name]
	if written {
		served := before.ready()
		if !inProgress {
			started = upgrade{since: e.seen, unreadySince: before.readySince()}
		}
		tookSlot = served && !started.slot
		started.slot, started.atWrite = started.slot || served, started.atWrite || tookSlot
		now.upgrades[v.name] = started
		return tookSlot
	}
	switch {
	case now.ready() && now.converged(v):
		delete(now.upgrades, v.name)
	case inProgress && !started.atWrite:
		// The pod serves until the pending restart, so the upgrade uses a slot. The slot counts from the time
		// at which a writer can observe that the pod serves (SPEC §7.5).
		takes := now.ready() || started.slot && !now.readySince().Equal(started.unreadySince)
		if takes && !started.slot {
			started.since = e.seen
		}
		started.slot = takes
		now.upgrades[v.name] = started
	}
	return false
}

// checkBound compares the number of pods that do not serve because of upgrades with maxUnavailable at the
// time when the worker decided to write the pod (SPEC §7.5).
func (o *Observer) checkBound(e event, h *history, now *pod) {
	v := h.newest()
	known := o.known(e.seen)
	_, most := h.extremes(e.seen.Add(-churnTime))
	allowed := 0
	for _, was := range h.since(known) {
		allowed = max(allowed, was.slots(most))
	}
	count, counted := 0, []string(nil)
	for _, p := range o.pods {
		started := p.upgrades[v.name]
		if !started.slot || !p.matched(v) || p.UID != now.UID && started.since.After(known) && !started.atWrite {
			continue
		}
		count++
		counted = append(counted, fmt.Sprintf("%s, since %s, at its write: %t, record of unavailability: %s",
			p.key(), started.since.Format(clockFormat), started.atWrite, p.Annotations[v1alpha1.UnavailableSinceAnnotation]))
		counted = append(counted, p.history[max(0, len(p.history)-10):]...)
	}
	if count > allowed {
		o.fail(e, now, "bound", v.name, fmt.Sprintf("%d pods do not serve because of upgrades, %d may (of %d):\n    %s", count, allowed, most, strings.Join(counted, "\n    ")))
	}
}

// checkPartition checks that at least as many pods as the partition requires stay old. Pods may have been
// created and deleted after the worker decided to write the pod (SPEC §7.4).
func (o *Observer) checkPartition(e event, h *history, now *pod) {
	v := h.newest()
	if v.gone || v.hash != now.hashes[v.name] {
		return
	}
	fewest, _ := h.extremes(e.seen.Add(-churnTime))
	kept := fewest
	for _, was := range h.since(o.known(e.seen)) {
		if !was.gone && was.hash == v.hash {
			kept = min(kept, was.kept(fewest))
		}
	}
	if old := o.countOld(v, e.seen.Add(-churnTime)); old < kept {
		o.fail(e, now, "partition", v.name, fmt.Sprintf("%d pods are old, %d are to stay so", old, kept))
	}
}

// countOld counts the old pods, including old pods that have stopped matching the SidecarSet after since.
func (o *Observer) countOld(v *version, since time.Time) (old int) {
	for _, p := range o.pods {
		if p.matched(v) && p.hashes[v.name] != v.hash {
			old++
		}
	}
	for _, left := range o.departures[v.name] {
		if left.After(since) {
			old++
		}
	}
	return old
}

// checkFence checks that the SidecarSet recently had the hash that was written (SPEC §7.1).
func (o *Observer) checkFence(e event, h *history, now *pod) {
	known := o.known(e.seen)
	name := h.newest().name
	found := ""
	for _, was := range h.since(known) {
		if !was.gone && !was.stopped && was.hash == now.hashes[name] {
			return
		}
		found += fmt.Sprintf(" generation %d (gone=%t, stopped=%t, hash %s) since %s;", was.generation, was.gone, was.stopped, was.hash, was.seen.Format(clockFormat))
	}
	o.fail(e, now, "fence", name, fmt.Sprintf("hash %s was written, wanted since %s:%s", now.hashes[name], known.Format(clockFormat), found))
}

// checkPause checks that a paused run writes no pods (SPEC §7.1).
func (o *Observer) checkPause(e event, v *version, now *pod) {
	since, paused := o.pauses[v.name]
	if paused && since.Before(o.known(e.seen)) {
		o.fail(e, now, "pause", v.name, fmt.Sprintf("it was written although the run is paused since %s", since.Format(clockFormat)))
	}
}

// checkTwins checks that exactly one of two twins is active, and that the active twin does not have the empty
// image (SPEC §7.7).
func (o *Observer) checkTwins(e event, v *version, before, now *pod, written bool) {
	for _, s := range v.sidecars {
		if s.empty == "" {
			continue
		}
		active := now.active[s.name]
		switch {
		case active != s.name+"-1" && active != s.name+"-2":
			o.fail(e, now, "twins", v.name, fmt.Sprintf("%q is active of the twins of %s", active, s.name))
		case now.image(active) == s.empty:
			o.fail(e, now, "twins", v.name, fmt.Sprintf("%s is active and empty", active))
		default:
			o.checkChangeOfTwins(e, v, s, before, now, written)
		}
	}
}

// checkChangeOfTwins checks that the serving twin keeps its image, and that the empty image is written into a
// twin only when the other twin serves.
func (o *Observer) checkChangeOfTwins(e event, v *version, s sidecar, before, now *pod, written bool) {
	served := before.active[s.name]
	if written && before.ready() && now.image(served) != before.image(served) {
		o.fail(e, now, "twins", v.name, fmt.Sprintf("%s was serving and was given another image", served))
	}
	active, standby := now.active[s.name], s.standby(now)
	emptied := now.image(standby) == s.empty && before.image(standby) != s.empty
	if status := statusOf(before.Pod, active); emptied && (!before.runs(active) || !status.Ready) {
		o.fail(e, now, "twins", v.name, fmt.Sprintf("%s was emptied before %s served", standby, active))
	}
}

func (o *Observer) fail(e event, p *pod, rule, set, text string) {
	o.violated(Violation{Seen: e.seen, Rule: rule, Set: set, Pod: p.key(), Text: text, History: p.history})
}
