package rollout

import (
	"fmt"

	"github.com/outrigger/outrigger/api/protocol"
)

// MaxBatch bounds the pods of one plan that are upgraded at once, and MaxReserve
// those that follow: together the size of one payload. The reserve is also
// bounded by the window, reservePerSlot times: more would only be planned again.
const (
	MaxBatch       = 200
	MaxReserve     = 800
	reservePerSlot = 10
)

// Plan is what to do next about a population, and how far it is.
type Plan struct {
	Phase   protocol.Phase
	Message string
	Counts  protocol.Counts
	// Pods to upgrade now, in order. They fit the budget together.
	Pods []protocol.SelectedPod
	// Reserve follows Pods, in order, as slots become free.
	Reserve []protocol.SelectedPod
	// Slots is how many ready pods may be unavailable at once, and Free how
	// many more could become so now.
	Slots, Free int
	// Example is a pod that the rollout waits for, namespace/name.
	Example string
	// NotUpgradable pods differ from the version in more than images. Sorted.
	NotUpgradable []protocol.PodReference
	// FalseConditions are pods whose condition SidecarSetUpgradable lacks the
	// entry false for the set; TrueConditions those that lack the entry true.
	// Nobody waits for the latter.
	FalseConditions, TrueConditions []protocol.PodReference
	// Hot sets have standby twins to reset after an upgrade.
	Hot bool

	// candidates are all that the rollout may move, in no order.
	candidates []candidate
}

func (p *Plan) count(pod *Pod) {
	if pod.Ready {
		p.Counts.Ready++
	}
	if pod.Updated {
		p.Counts.Updated++
		if pod.Settled() {
			p.Counts.UpdatedReady++
		}
	}
	if pod.Migrating {
		p.Counts.Migrating++
	}
	if pod.Migrated {
		p.Counts.Migrated++
	}
	if !pod.InFlight() {
		return
	}
	p.Counts.Unavailable++
	if pod.Updated && pod.Moved {
		p.Counts.Settling++
		if name := pod.Reference().String(); p.Example == "" || name < p.Example {
			p.Example = name
		}
	}
}

// addCondition lists a pod whose condition is out of date.
func (p *Plan) addCondition(pod *Pod) {
	switch {
	case pod.FalseConditionDue && len(p.FalseConditions) < MaxBatch:
		p.FalseConditions = append(p.FalseConditions, pod.Reference())
	case pod.TrueConditionDue && len(p.TrueConditions) < MaxBatch:
		p.TrueConditions = append(p.TrueConditions, pod.Reference())
	}
}

func (p *Plan) message() string {
	message := fmt.Sprintf("%d of %d pods updated, %d of them ready; %d to go, %d unavailable of %d allowed",
		p.Counts.Updated, p.Counts.Matched, p.Counts.UpdatedReady, p.Counts.Remaining, p.Counts.Unavailable, p.Slots)
	if p.Counts.NotUpgradable > 0 {
		message += fmt.Sprintf("; %d not upgradable in place, such as %s", p.Counts.NotUpgradable, p.NotUpgradable[0])
	}
	if p.Phase == protocol.PhaseWaiting && p.Example != "" {
		message += "; waiting for pods such as " + p.Example
	}
	return message
}
