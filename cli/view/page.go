package view

import (
	"strings"
	"time"
)

// The templates of the UI call the methods in this file.

// State returns the headline with the remaining bake time.
func (s *Summary) State(now time.Time) string { return withTimeLeft(s.Headline, s.BakesUntil, now) }

// Tone returns the tone of the headline.
func (s *Summary) Tone() Tone { return headlineTone(s.Headline) }

// Age returns the age of the SidecarSet.
func (s *Summary) Age(now time.Time) string { return age(now, s.Created) }

// State returns the headline with the remaining bake time.
func (r *Rollout) State(now time.Time) string { return r.statusLine(Style{Now: now}) }

// Tone returns the tone of the headline.
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

// Tone returns the tone of the phase of the pod.
func (p *Pod) Tone() Tone { return p.tone() }

// For returns the duration of an upgrade in progress, or an empty string.
func (p *Pod) For(now time.Time) string {
	if p.Since == nil {
		return ""
	}
	return age(now, *p.Since)
}

// Title returns the kind and the name of the workload.
func (o *Owner) Title() string {
	if o.Kind == "" {
		return "pods without controller"
	}
	return strings.ToLower(o.Kind) + "/" + o.Name
}

// Ready returns the number of ready pods. A pod in phase PodUpgrading does not count, because the kubelet may
// not have observed the change yet.
func (o *Owner) Ready() (ready int) {
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Ready && pod.Phase != PodUpgrading {
			ready++
		}
	}
	return ready
}

// Definition describes the pods, the bake time and the approval of the step. If the step is unknown,
// Definition returns an empty string.
func (p *Step) Definition() string { return p.definition("", "") }

// Progress describes the state of the step, with the remaining bake time.
func (p *Step) Progress(now time.Time) string {
	switch p.State {
	case StepEnded, StepNext:
		return strings.ToLower(string(p.State))
	}
	return p.state(now)
}

// Tone returns the tone of the state of the step.
func (p *Step) Tone() Tone {
	switch p.State {
	case StepEnded:
		return Good
	case StepNext:
		return Faint
	}
	return Busy
}
