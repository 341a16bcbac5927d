package view

import (
	"strings"
	"time"
)

// These methods are for a web page, which renders its own tables.

// State is the headline with the rest of a bake time.
func (s *Summary) State(now time.Time) string { return withTimeLeft(s.Headline, s.BakesUntil, now) }

// Tone is the meaning of the headline.
func (s *Summary) Tone() Tone { return headlineTone(s.Headline) }

// Age is the age of the SidecarSet.
func (s *Summary) Age(now time.Time) string { return age(now, s.Created) }

// State is the headline with the rest of a bake time.
func (r *Rollout) State(now time.Time) string { return r.statusLine(Style{Now: now}) }

// Tone is the meaning of the headline.
func (r *Rollout) Tone() Tone { return headlineTone(r.Headline) }

// ListedPods returns the pods that the page lists one by one: lost pods, and pods whose phase is neither
// Updated nor Old.
func (r *Rollout) ListedPods() []*Pod {
	var listed []*Pod
	for _, pod := range r.pods() {
		if !pod.counted() {
			listed = append(listed, pod)
		}
	}
	return listed
}

// Tone is the meaning of the phase of the pod.
func (p *Pod) Tone() Tone { return p.tone() }

// For is the duration of an upgrade in progress, or empty.
func (p *Pod) For(now time.Time) string {
	if p.Since == nil {
		return ""
	}
	return age(now, *p.Since)
}

// Title names the workload.
func (o *Owner) Title() string {
	if o.Kind == "" {
		return "pods without controller"
	}
	return strings.ToLower(o.Kind) + "/" + o.Name
}

// Ready counts the ready pods. A pod in upgrade does not count, because the kubelet has not observed the
// change yet.
func (o *Owner) Ready() (ready int) {
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Ready && pod.Phase != PodUpgrading {
			ready++
		}
	}
	return ready
}

// Definition describes the pods of the step, its bake time and its approval; empty if they are not known.
func (p *Step) Definition() string { return p.definition("", "") }

// Progress describes the state of the step, with the rest of its bake time.
func (p *Step) Progress(now time.Time) string {
	switch p.State {
	case StepEnded, StepNext:
		return strings.ToLower(string(p.State))
	}
	return p.state(now)
}

// Tone is the meaning of the state of the step.
func (p *Step) Tone() Tone {
	switch p.State {
	case StepEnded:
		return Good
	case StepNext:
		return Faint
	}
	return Busy
}
