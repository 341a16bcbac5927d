package rollout

import (
	"fmt"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
)

// MaxBatch limits the pods of one plan that are upgraded at once. MaxQueued limits the queued pods of a plan.
// Together, MaxBatch and MaxQueued limit the size of a payload. A plan queues at most queuedPerSlot pods for
// each slot, because the next plan orders the remaining pods again. A plan queues one more pod for each
// rejected pod, because queued pods may be rejected, too.
const (
	MaxBatch      = 200
	MaxQueued     = 800
	queuedPerSlot = 10
)

// WaitingFor is the text in Plan.Message before an example of the pods that a rollout waits for.
const WaitingFor = "waiting for pods such as "

// Plan contains the pods that a rollout upgrades next, and the progress of the rollout.
type Plan struct {
	Phase   protocol.Phase
	Message string
	Counts  protocol.Counts
	// Pods contains the pods to upgrade now, in order. The upgrades of these pods do not exceed
	// maxUnavailable.
	Pods []protocol.SelectedPod
	// Queued contains the pods that are upgraded after Pods, in order, as slots open.
	Queued []protocol.SelectedPod
	// MaxUnavailable is the number of ready pods that upgrades may make unavailable at once.
	// OpenSlots is the number of further pods that upgrades may make unavailable now.
	MaxUnavailable, OpenSlots int
	// NotReady counts the pods that are not ready for a reason other than an upgrade. These pods use no slot.
	NotReady int
	// NodesLost counts the candidates on nodes that do not respond. LostExample is the first of these
	// candidates, in the form namespace/name.
	NodesLost   int
	LostExample string
	// Example is the first pod by name that the rollout waits for, in the form namespace/name.
	Example string
	// NotUpgradable is the sorted list of pods that need an upgrade and are not upgradable. The list does not
	// contain pods of Jobs. OfJobs counts the pods of Jobs that are not upgradable (SPEC 7.2.14).
	NotUpgradable []protocol.PodReference
	OfJobs        int
	// FalseConditions are the pods in whose condition SidecarSetUpgradable the entry for the SidecarSet must
	// become false. TrueConditions are the pods in which this entry must become true. A rollout does not wait for
	// the writes of TrueConditions.
	FalseConditions, TrueConditions []protocol.PodReference
	// Hot is set if the SidecarSet has a hot sidecar, so that standby twins are reset after an upgrade.
	Hot bool
	// Frozen is the reason why the plan has no upgrades: a RolloutFreeze, closed windows, or a missing
	// permit of the fleet. Frozen is empty for every other plan.
	Frozen string

	// Quarantined counts the pods that a rollback still has to upgrade. QuarantinedReady counts only the
	// ready pods of Quarantined.
	Quarantined, QuarantinedReady int

	// slotExample is the first pod by name that uses a slot and is not converging.
	slotExample string

	// StepFull is set if pods remain to be upgraded, and the current step permits no further upgrade.
	StepFull bool

	// allowed is the number of the remaining pods that the rollout may upgrade in the current step.
	allowed int
	// scope contains the pods and the cluster to which the further limits of the policy apply. scope is nil if
	// the policy has no further limits. blocked describes a pod that waits only because of the further limits.
	// AwaitsBudget is set if a PodDisruptionBudget has no slot for a pod.
	scope        *scope
	blocked      string
	AwaitsBudget bool
	// candidates are the candidates of the rollout. The list is not sorted.
	candidates []candidate
}

func (p *Plan) count(pod *Pod) {
	if pod.Ready {
		p.Counts.Ready++
	}
	if pod.Updated {
		p.Counts.Updated++
		if pod.Converged() {
			p.Counts.UpdatedReady++
		}
	}
	if pod.Migrating {
		p.Counts.Migrating++
	}
	if pod.Migrated {
		p.Counts.Migrated++
	}
	byUpgrade, current := pod.UnavailableByUpgrade(), pod.Updated && pod.UpgradedToVersion
	switch {
	case byUpgrade:
		p.Counts.Unavailable++
	case !pod.Ready && !pod.Migrating:
		p.NotReady++
	}
	switch {
	case current && (byUpgrade || pod.Resizing):
		p.Counts.Converging++
		p.Example = firstName(p.Example, pod)
	case byUpgrade:
		p.slotExample = firstName(p.slotExample, pod)
	}
}

// firstName returns the first of two names of pods in the form namespace/name. known may be empty.
func firstName(known string, pod *Pod) string {
	if name := pod.Reference().String(); known == "" || name < known {
		return name
	}
	return known
}

// addNotUpgradable counts a pod that needs an upgrade and is not upgradable.
func (p *Plan) addNotUpgradable(pod *Pod) {
	if podstate.RunsToCompletion(pod.Pod) {
		p.OfJobs++
		return
	}
	p.Counts.NotUpgradable++
	p.NotUpgradable = append(p.NotUpgradable, pod.Reference())
}

// addLost counts a candidate on a node that does not respond.
func (p *Plan) addLost(pod *Pod) {
	p.NodesLost++
	p.LostExample = firstName(p.LostExample, pod)
}

// lostNodes returns the part of the message about candidates on nodes that do not respond. The result is
// empty if there are no such candidates.
func (p *Plan) lostNodes() string {
	if p.NodesLost == 0 {
		return ""
	}
	return fmt.Sprintf("; %d on nodes that do not respond, such as %s", p.NodesLost, p.LostExample)
}

// Upgradable yields the pods that can be upgraded, now or once a slot opens.
func (p *Plan) Upgradable(yield func(*Pod) bool) {
	for i := range p.candidates {
		if pod := p.candidates[i].Pod; !pod.Waits() && !yield(pod) {
			return
		}
	}
}

// addCondition adds a pod whose condition is out of date to the plan.
func (p *Plan) addCondition(pod *Pod) {
	switch {
	case pod.ConditionInBackoff:
	case pod.FalseConditionDue && len(p.FalseConditions) < MaxBatch:
		p.FalseConditions = append(p.FalseConditions, pod.Reference())
	case pod.TrueConditionDue && len(p.TrueConditions) < MaxBatch+MaxQueued:
		p.TrueConditions = append(p.TrueConditions, pod.Reference())
	}
}

// block records the first pod that waits only because of a limit of the policy.
func (p *Plan) block(pod *Pod, full limit, slots int) {
	if slots <= 0 {
		return
	}
	if p.blocked == "" {
		p.blocked = fmt.Sprintf("%s waits for %s", pod.Reference(), full.wants(pod))
	}
	if _, budget := full.(*disruptions); budget {
		p.AwaitsBudget = true
	}
}

func (p *Plan) message() string {
	unavailable := fmt.Sprintf("%d unavailable of %d allowed", p.Counts.Unavailable, p.MaxUnavailable)
	if p.Counts.Unavailable > p.MaxUnavailable {
		unavailable = fmt.Sprintf("%d unavailable, more than the %d allowed", p.Counts.Unavailable, p.MaxUnavailable)
	}
	if p.NotReady > 0 {
		unavailable += fmt.Sprintf(", %d more not ready", p.NotReady)
	}
	message := fmt.Sprintf("%d of %d pods updated, %d of them ready; %d to go, %s",
		p.Counts.Updated, p.Counts.Matched, p.Counts.UpdatedReady, p.Counts.Remaining, unavailable)
	if p.Counts.Migrating > 0 {
		// A pod in a hot upgrade serves requests, but does not count as ready.
		message += fmt.Sprintf("; %d in a hot upgrade", p.Counts.Migrating)
	}
	if p.Counts.NotUpgradable > 0 {
		message += fmt.Sprintf("; %d not upgradable in place, such as %s", p.Counts.NotUpgradable, p.NotUpgradable[0])
	}
	if p.OfJobs > 0 {
		message += fmt.Sprintf("; pods of Jobs that keep their version until their end: %d", p.OfJobs)
	}
	message += p.lostNodes()
	if p.Phase == protocol.PhaseWaiting && p.Example != "" {
		message += "; " + WaitingFor + p.Example
	}
	if p.Phase == protocol.PhaseWaiting && p.blocked != "" {
		message += "; " + p.blocked
	}
	return message
}
