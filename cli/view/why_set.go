package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// RolloutWhy says why the rollout of a set does not move, the decisive reason first.
type RolloutWhy struct {
	Name    string         `json:"name"`
	Phase   protocol.Phase `json:"phase"`
	Message string         `json:"message"`
	Reasons []string       `json:"reasons"`
}

// stillness collects reasons.
type stillness struct {
	*Rollout
	set       *v1alpha1.SidecarSet
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision
	missing   int
	leftAlone []leftAlone
	// systemNamespace is where the operator runs.
	systemNamespace string
}

// NewRolloutWhy explains what a Rollout shows. missing pods match and were not injected.
func NewRolloutWhy(r *Rollout, in RolloutInput, missing int) *RolloutWhy {
	s := stillness{Rollout: r, set: in.Set, pods: in.Pods, revisions: in.Revisions, missing: missing, systemNamespace: in.SystemNamespace}
	// Labels of namespaces that could not be read have failed NewRollout.
	s.leftAlone, _ = findLeftAlone(in.Set, in.Pods, in.NamespaceLabels)
	w := &RolloutWhy{Name: r.Name, Phase: r.Phase, Message: r.Message, Reasons: []string{}}
	for _, look := range []func(*stillness) []string{
		(*stillness).unseen, (*stillness).switchedOff, (*stillness).engine, (*stillness).stuckPods, (*stillness).blamed, (*stillness).outside, (*stillness).ended, (*stillness).uninjected,
	} {
		w.Reasons = append(w.Reasons, look(&s)...)
	}
	if len(w.Reasons) == 0 {
		w.Reasons = append(w.Reasons, "it moves: "+r.Message)
	}
	return w
}

func (s *stillness) unseen() []string {
	if s.Observed {
		return nil
	}
	return []string{fmt.Sprintf("the operator has not seen generation %d: is it running? (kubectl -n %s get pods)", s.Generation, s.systemNamespace)}
}

func (s *stillness) switchedOff() []string {
	var found []string
	if s.set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType {
		found = append(found, "upgrades are off: spec.updateStrategy.type is NotUpdate")
	}
	if s.set.Spec.UpdateStrategy.Paused {
		found = append(found, "spec.updateStrategy.paused is true")
	}
	if s.Hold != nil {
		found = append(found, "held "+heldBy(s.Hold)+" (kubectl sidecarset resume "+s.Name+")")
	}
	return found
}

// engine is what the operator says about Temporal and the workers.
func (s *stillness) engine() []string {
	for _, c := range s.Conditions {
		switch c.Reason {
		case v1alpha1.ReasonInvalid, v1alpha1.ReasonTemporalUnavailable, v1alpha1.ReasonTemporalThrottled, v1alpha1.ReasonWorkerUnavailable,
			v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable:
			return []string{c.Reason + ": " + c.Message}
		}
	}
	return nil
}

// stuckPods are those that take the window, or whose writes were refused.
func (s *stillness) stuckPods() []string {
	var found []string
	if s.Counts.Remaining > 0 && s.Window.Slots == 0 {
		found = append(found, "maxUnavailable is "+s.Window.MaxUnavailable+": no pod that serves may be upgraded")
	}
	if s.Counts.Remaining > 0 && s.Window.Free == 0 && s.Window.Slots > 0 {
		found = append(found, fmt.Sprintf("the window is full: %d of %d pods are unavailable", s.Counts.Unavailable, s.Window.Slots))
	}
	const enough = 10
	named := 0
	for pod := range s.Rollout.pods() {
		if pod.quiet() || pod.Phase == PodNotUpgradable {
			continue
		}
		if named++; named <= enough {
			found = append(found, fmt.Sprintf("%s/%s is %s: %s", pod.Namespace, pod.Name, pod.Phase, pod.Why))
		}
	}
	if named > enough {
		found = append(found, fmt.Sprintf("and %s more", plural(named-enough, "pod")))
	}
	return found
}

// blamed names the fields that keep pods from their upgrade in place.
func (s *stillness) blamed() []string {
	if s.Counts.NotUpgradable == 0 {
		return nil
	}
	known := newHistory(s.set, s.revisions)
	refused := map[string]bool{}
	for pod := range s.Rollout.pods() {
		if pod.Phase == PodNotUpgradable {
			refused[pod.Namespace+"/"+pod.Name] = true
		}
	}
	count := map[string]int{}
	for _, pod := range s.pods {
		if !refused[pod.Namespace+"/"+pod.Name] {
			continue
		}
		// The annotations were read before.
		if entries, err := record.Hashes(pod.Annotations); err == nil {
			count[known.blame(entries[s.Name], &s.set.Spec)]++
		}
	}
	var found []string
	for why, n := range count {
		found = append(found, fmt.Sprintf("%s %s; create them anew", plural(n, "pod"), why))
	}
	slices.Sort(found)
	return found
}

// outside names a pod that was injected and that rollouts leave out.
func (s *stillness) outside() []string {
	switch n := len(s.leftAlone); n {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("%s/%s is left alone: %s", s.leftAlone[0].Namespace, s.leftAlone[0].Name, s.leftAlone[0].why)}
	default:
		return []string{fmt.Sprintf("%d pods are left alone, such as %s/%s: %s (kubectl sidecarset list --outdated)", n, s.leftAlone[0].Namespace, s.leftAlone[0].Name, s.leftAlone[0].why)}
	}
}

func (s *stillness) ended() []string {
	switch {
	case s.Counts.Matched == 0 && len(s.leftAlone) > 0:
		return nil
	case s.Counts.Matched == 0:
		return []string{"no pod is injected with this set"}
	case s.Phase == protocol.PhasePartitionReached:
		return []string{"spec.updateStrategy.partition (" + s.Window.Partition + ") keeps the other pods old"}
	case s.Phase == protocol.PhaseComplete && s.set.Spec.UpdateStrategy.Selector != nil && s.Counts.Updated < s.Counts.Matched:
		return []string{"spec.updateStrategy.selector takes no other pods"}
	case s.Phase == protocol.PhaseComplete && s.Counts.NotUpgradable == 0:
		return []string{"nothing is left to do: " + s.Message}
	}
	return nil
}

func (s *stillness) uninjected() []string {
	if s.missing == 0 {
		return nil
	}
	return []string{fmt.Sprintf("not injected though they match: %s (kubectl sidecarset list --missing)", plural(s.missing, "pod"))}
}

// Write writes a line for each reason.
func (w *RolloutWhy) Write(out io.Writer, t Text) error {
	lines := []string{"sidecarset/" + t.Paint.in(Strong, w.Name) + ": " + t.Paint.in(phaseTone(w.Phase), string(w.Phase)) + ", " + w.Message}
	for _, reason := range w.Reasons {
		lines = append(lines, "  "+reason)
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}
