package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// RolloutWhy explains why the rollout of a SidecarSet makes no progress. The main reason comes first.
type RolloutWhy struct {
	Name string `json:"name"`
	// Headline is a short phrase for the state of the rollout.
	Headline string         `json:"headline"`
	Phase    protocol.Phase `json:"phase"`
	Message  string         `json:"message"`
	Reasons  []string       `json:"reasons"`
	// bakesUntil is the end of a bake time.
	bakesUntil *time.Time
}

// NewRolloutWhy explains a rollout. If the pods of the SidecarSet cannot be determined, NewRolloutWhy returns
// an error.
func NewRolloutWhy(in *Input) (*RolloutWhy, error) {
	r, err := NewRollout(in)
	if err != nil {
		return nil, err
	}
	version, err := podstate.NewVersion(in.Set)
	if err != nil {
		return nil, err
	}
	left, err := in.leftOut(version)
	if err != nil {
		return nil, err
	}
	missing, err := Missing(in)
	if err != nil {
		return nil, err
	}
	reasons := slices.Concat(r.stoppedBy(in), r.operatorReasons(), r.stuckPods(in.Nodes.Now), r.notUpgradable(in))
	switch n := len(left); {
	case n == 1:
		reasons = append(reasons, fmt.Sprintf("%s/%s is not managed: %s (kubectl sidecarset list --outdated)", left[0].Namespace, left[0].Name, left[0].Reason))
	case n > 1:
		reasons = append(reasons, fmt.Sprintf("%d pods are not managed, such as %s/%s: %s (kubectl sidecarset list --outdated)", n, left[0].Namespace, left[0].Name, left[0].Reason))
	}
	if lost := r.lostPodsLine(); lost != "" {
		reasons = append(reasons, lost+" ("+r.deleteLostPods()+")")
	}
	reasons = append(reasons, r.onNotReadyNodes(in.Nodes)...)
	if end := r.end(in, len(left)); end != "" {
		reasons = append(reasons, end)
	}
	if len(missing) > 0 {
		line := r.missingLine(missing)
		if len(reasons) == 0 && r.Phase == protocol.PhaseComplete {
			line = "the injected pods are updated; " + line
		}
		reasons = append(reasons, line)
	}
	switch {
	case len(reasons) > 0:
	case r.Phase == protocol.PhaseComplete:
		reasons = []string{"nothing is left to do: " + r.Message + " (kubectl sidecarset history " + r.Name + ")"}
	default:
		reasons = []string{"in progress: " + r.Message + " (kubectl sidecarset status " + r.Name + " --watch)"}
	}
	return &RolloutWhy{Name: r.Name, Headline: r.Headline, Phase: r.Phase, Message: r.Message, Reasons: reasons, bakesUntil: bakesUntil(r.Phase, r.stage)}, nil
}

// missingLine returns a line about the pods without sidecars. The command restart recreates the pods that
// have a controller.
func (r *Rollout) missingLine(missing BehindPods) string {
	line := fmt.Sprintf("not injected though they match: %s (kubectl sidecarset list --missing)", rollout.Count(len(missing), "pod"))
	if missing.controlled() {
		line += "; " + recreatePods + restartCommand(r.Name)
	}
	return line
}

// stoppedBy returns the reasons why a rollout does not continue: a deletion, a fault of the installation, a
// generation that the operator has not observed, disabled upgrades, a pause, a freeze, a quarantine, or a step
// that has not ended.
func (r *Rollout) stoppedBy(in *Input) []string {
	var found []string
	switch {
	case r.terminating:
		found = append(found, "the SidecarSet is being deleted ("+seeFinalizers(r.Name)+")")
	case r.Fault != (Fault{}):
		found = append(found, r.Fault.Message)
	case !r.Observed:
		found = append(found, fmt.Sprintf("the operator has not observed generation %d yet; if this takes more than a few seconds: %s", r.Generation, checkCommand))
	}
	if in.Set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType {
		found = append(found, "upgrades are disabled: spec.updateStrategy.type is NotUpdate ("+PatchStrategy(r.Name, "type", `"RollingUpdate"`)+")")
	}
	if r.PausedBySpec {
		found = append(found, PausedBySpec(r.Name))
	}
	if r.Pause != nil {
		found = append(found, "paused "+pausedFor(r.Pause, in.Now)+PausedBySignal(r.Name, r.Pause))
	}
	found = append(found, r.noAnswer()...)
	switch r.Phase {
	case protocol.PhaseBaking:
		found = append(found, r.waits+" ("+endBake+PromoteCommand(r.Name)+")")
	case protocol.PhaseGateRunning:
		found = append(found, r.waits+" (skip its gates: "+PromoteCommand(r.Name)+")")
	case protocol.PhaseFrozen:
		found = append(found, withUnfreeze(r.frozenBy()))
	case protocol.PhaseQuarantined:
		found = append(found, r.Message+" ("+retryCommand(r.Name)+")")
	case protocol.PhaseAwaitingApproval:
		found = append(found, r.waits+" ("+ApproveCommand(r.Name)+")")
	}
	return found
}

// noAnswer returns the reason if the run or Temporal does not respond. If both respond, if the rollout has
// ended, or if the fault already names this part, noAnswer returns nil.
func (r *Rollout) noAnswer() []string {
	switch part := r.Fault.part(); {
	case r.Phase.Ended():
	case r.unreachable && part != temporalPart:
		return []string{r.RunUnknown + "; if the worker cannot reach Temporal either, the rollout waits (" + checkCommand + ")"}
	case r.notResponding && part != workersPart:
		return []string{protocol.NoAnswer}
	}
	return nil
}

// operatorReasons returns the reasons of conditions about Temporal, the workers, the run or the webhook.
func (r *Rollout) operatorReasons() []string {
	var found []string
	// Several conditions may have the same reason. Degraded comes before Progressing, because the message of
	// Progressing also contains the counts of an earlier plan.
	conditions := slices.DeleteFunc(slices.Clone(r.Conditions), func(c Condition) bool { return c.Type == v1alpha1.ConditionReady })
	slices.Reverse(conditions)
	for _, c := range conditions {
		switch c.Reason {
		case v1alpha1.ReasonInvalid, v1alpha1.ReasonTemporalUnavailable, v1alpha1.ReasonTemporalThrottled, v1alpha1.ReasonWorkerUnavailable,
			v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable, v1alpha1.ReasonWebhookUnavailable:
			if c.Reason != r.Fault.Reason && !slices.ContainsFunc(found, func(reason string) bool { return strings.HasPrefix(reason, c.Reason+":") }) {
				message := r.messageOf(&c)
				if isOutage(c.Reason) && !r.answered(&c) {
					message += "; the rollout continues by itself after the outage"
				}
				if !strings.Contains(message, "kubectl ") {
					message += " (" + checkCommand + ")"
				}
				found = append(found, c.Reason+": "+message)
			}
		}
	}
	return found
}

// stuckPods returns lines about the pods that use slots, or whose writes were rejected.
func (r *Rollout) stuckPods(now time.Time) []string {
	var found []string
	if r.Counts.Remaining > 0 && r.Limits.Slots == 0 {
		found = append(found, "maxUnavailable is "+r.Limits.MaxUnavailable+": no ready pod may be upgraded ("+PatchStrategy(r.Name, "maxUnavailable", "1")+")")
	}
	if r.Counts.Remaining > 0 && r.Limits.Open == 0 && r.Limits.Slots > 0 && !r.notResponding {
		found = append(found, fmt.Sprintf("all slots are used: %s unavailable (maxUnavailable %s)", rollout.Count(r.Counts.Unavailable, "pod"), r.Limits.MaxUnavailable))
	}
	const enough = 10
	named, starting := 0, r.starting()
	for _, pod := range r.pods() {
		if pod.settled() || starting(pod) {
			continue
		}
		if named++; named <= enough {
			since := ""
			if pod.Since != nil && !now.IsZero() {
				since = " for " + age(now, *pod.Since)
			}
			found = append(found, fmt.Sprintf("%s/%s is %s%s: %s", pod.Namespace, pod.Name, pod.Phase, since, pod.Reason))
		}
	}
	if named > enough {
		found = append(found, fmt.Sprintf("and %s more", rollout.Count(named-enough, "pod")))
	}
	return slices.Concat(found, r.stuckPodsNext(), r.unreadyReasons(now))
}

// starting returns a function that reports whether an upgrade of a pod is in progress while the run does not
// respond or during an outage. The pod may only be starting, so the pod is not reported as the cause.
func (r *Rollout) starting() func(*Pod) bool {
	silent := r.notResponding || isOutage(r.facts().progressing)
	return func(pod *Pod) bool { return silent && pod.tone() == Busy }
}

// stuckPodsNext returns a command for each phase of stuck pods.
func (r *Rollout) stuckPodsNext() []string {
	commands, starting := map[PodPhase]string{}, r.starting()
	for _, pod := range r.pods() {
		if commands[pod.Phase] != "" || starting(pod) || pod.nodeCommand != "" {
			continue
		}
		switch pod.Phase {
		case PodFailing:
			if !pod.inPlace {
				continue // notUpgradable returns the command for this pod.
			}
			commands[pod.Phase] = "the rollout gives these pods the newest content: kubectl sidecarset status " + r.Name + " --watch"
			if r.fails() {
				commands[pod.Phase] = "to go back: " + r.undo
			}
		case PodRejected:
			commands[pod.Phase] = "the worker retries rejected pods; to see the attempts: kubectl sidecarset open " + r.Name
		case PodUnready, PodUpgrading, PodMigrating, PodWaiting:
			commands[pod.Phase] = "to see the events of a pod: " + describeCommand(pod)
		}
	}
	var found []string
	for _, phase := range []PodPhase{PodFailing, PodRejected, PodUnready, PodUpgrading, PodMigrating, PodWaiting} {
		if command := commands[phase]; command != "" {
			found = append(found, command)
		}
	}
	return found
}

// notUpgradable returns lines that name the fields that prevent upgrades in place.
func (r *Rollout) notUpgradable(in *Input) []string {
	if r.Counts.NotUpgradable == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, pod := range r.pods() {
		if pod.Phase == PodNotUpgradable || pod.Phase == PodFailing && !pod.inPlace {
			names[pod.Namespace+"/"+pod.Name] = true
		}
	}
	known, count, controlled := in.revisions(), map[string]int{}, map[string]bool{}
	for _, pod := range in.Pods {
		if !names[pod.Namespace+"/"+pod.Name] {
			continue
		}
		reason := known.whyNotInPlace(pod, &in.Set.Spec)
		count[reason]++
		controlled[reason] = controlled[reason] || podstate.Controlled(pod)
	}
	var found []string
	for reason, n := range count {
		line := fmt.Sprintf("%s %s; recreate them", rollout.Count(n, "pod"), reason)
		if controlled[reason] {
			line += ": " + restartCommand(r.Name)
		}
		found = append(found, line)
	}
	slices.Sort(found)
	return found
}

// end returns the reason why a rollout has no pod to upgrade: no pod matches, or a setting excludes pods. leftOut
// is the number of injected pods that are not matched. If there is no such reason, or if no injected pod is
// matched, end returns an empty string.
func (r *Rollout) end(in *Input, leftOut int) string {
	switch {
	case r.Counts.Matched == 0 && leftOut > 0:
		return ""
	case r.Counts.Matched == 0:
		return r.noPods.reason()
	case r.Phase == protocol.PhasePartitionReached && r.Counts.Updated+r.Counts.NotUpgradable < r.Counts.Matched:
		return "spec.updateStrategy.partition (" + r.Limits.Partition + ") keeps the other pods old (" + PatchStrategy(r.Name, "partition", "0") + ")"
	case r.InjectionPaused && r.Phase == protocol.PhaseComplete:
		return "new pods get no sidecars: spec.injectionStrategy.paused is true (" + resumeInjection(r.Name) + ")"
	case r.Phase == protocol.PhaseComplete && in.Set.Spec.UpdateStrategy.Selector != nil && r.Counts.Updated < r.Counts.Matched:
		return "spec.updateStrategy.selector selects no other pods (" + PatchStrategy(r.Name, "selector", "null") + ")"
	}
	return ""
}

// Text returns a line with the headline, and then a line for each reason.
func (w *RolloutWhy) Text(s Style) string {
	lines := []string{"sidecarset/" + s.Paint.in(Strong, w.Name) + ": " + s.Paint.in(headlineTone(w.Headline), withTimeLeft(w.Headline, w.bakesUntil, s.Now)) + ", " + w.Message}
	for _, reason := range w.Reasons {
		lines = append(lines, "  "+reason)
	}
	return text(lines)
}
