package simulate

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// Result is the timeline of a simulated rollout.
type Result struct {
	SidecarSet string `json:"sidecarSet"`
	Policy     string `json:"policy"`
	// Hypothetical is set if no pod needs an upgrade to the current version. In this case, the simulation
	// upgrades all pods that can be upgraded in place to other images.
	Hypothetical bool     `json:"hypothetical,omitempty"`
	Notes        []string `json:"notes,omitempty"`
	// Pods is the number of matched pods. ToUpgrade is the number of pods that the rollout upgrades.
	Pods      int `json:"pods"`
	ToUpgrade int `json:"toUpgrade"`
	// MaxUnavailable is the value in the SidecarSet. MaxUnavailablePods is this value as a number of pods.
	MaxUnavailable     string          `json:"maxUnavailable"`
	MaxUnavailablePods int             `json:"maxUnavailablePods"`
	Begin              metav1.Time     `json:"begin"`
	ColdRestart        metav1.Duration `json:"coldRestart"`
	Events             []Event         `json:"events"`
	// Complete is set if the rollout upgraded all its pods. End describes how the rollout ended, or why it does
	// not end.
	Complete bool `json:"complete"`
	// Failed is set if the policy pauses the rollout, or rolls it back.
	Failed bool            `json:"failed,omitempty"`
	End    string          `json:"end"`
	Took   metav1.Duration `json:"took"`
	// Upgraded is the number of pods that were upgraded. A batch contains the pods whose upgrades
	// began at the same time.
	Upgraded int  `json:"upgraded"`
	Batches  int  `json:"batches"`
	Most     Most `json:"mostUnavailable"`

	failed, notReady int
}

// Event is an event of the timeline. The upgrades of a step are one event if no other event occurs between
// the upgrades.
type Event struct {
	// After is the time since the start of the rollout.
	After metav1.Duration `json:"after"`
	// Step names the step, and is empty after the last step.
	Step string `json:"step,omitempty"`
	// Upgraded is the number of pods whose upgrades began, and Batches is the number of their batches. LastAfter
	// is the time of the last batch. Unavailable is the largest number of pods that were unavailable at once.
	Upgraded    int              `json:"upgraded,omitempty"`
	Batches     int              `json:"batches,omitempty"`
	LastAfter   *metav1.Duration `json:"lastAfter,omitempty"`
	Unavailable int              `json:"unavailable,omitempty"`
	// Message describes an event that is not an upgrade of pods.
	Message string `json:"message,omitempty"`
}

// Most contains the largest numbers of pods that upgrades made unavailable at once.
type Most struct {
	Pods     int `json:"pods"`
	PerOwner int `json:"perOwner"`
	// PerDomain and Domains are 0 if the policy limits no domains. Domains is the number of domains
	// with unavailable pods.
	PerDomain int `json:"perDomain,omitempty"`
	Domains   int `json:"domains,omitempty"`
}

// observe updates the largest numbers with the pods that are unavailable now, and returns the number of these
// pods.
func (m *Most) observe(pods []rollout.Pod, domain func(node string) string) int {
	unavailable, owners, domains := 0, map[types.UID]int{}, map[string]int{}
	for i := range pods {
		pod := &pods[i]
		if !pod.UnavailableByUpgrade() {
			continue
		}
		unavailable++
		if controller := metav1.GetControllerOfNoCopy(pod.Pod); controller != nil {
			owners[controller.UID]++
			m.PerOwner = max(m.PerOwner, owners[controller.UID])
		}
		if domain == nil {
			continue
		}
		if name := domain(pod.Spec.NodeName); name != "" {
			domains[name]++
			m.PerDomain = max(m.PerDomain, domains[name])
		}
	}
	m.Pods, m.Domains = max(m.Pods, unavailable), max(m.Domains, len(domains))
	return unavailable
}

// addPlan adds the numbers of the first plan to the result, and adds notes about the assumptions of the
// simulation.
func (r *Result) addPlan(set *v1alpha1.SidecarSet, plan *rollout.Plan) {
	r.Pods, r.ToUpgrade, r.MaxUnavailablePods, r.MaxUnavailable = plan.Counts.Matched, plan.Counts.Remaining, plan.MaxUnavailable, "1"
	if value := set.Spec.UpdateStrategy.MaxUnavailable; value != nil {
		r.MaxUnavailable = value.String()
	}
	if updated := plan.Counts.Updated; updated > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s updated already; the simulation begins with the first step", isAre(updated, "pod")))
	}
	if stage.QuarantineOf(set) != nil {
		r.Notes = append(r.Notes, "the content of the SidecarSet is quarantined; the simulation rolls it out")
	}
	if r.failed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s cannot start now; the simulation assumes that an upgrade corrects them", rollout.Count(r.failed, "pod")))
	}
	if r.notReady > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s not ready now; the simulation assumes that an upgrade makes pods ready", isAre(r.notReady, "pod")))
	}
	if plan.Hot {
		r.Notes = append(r.Notes, "hot upgrades take the same time as cold restarts in the simulation, although their pods serve requests")
	}
}

// addBatch adds a batch of upgrades that begin now. If more is set, the batch belongs to the last event.
func (r *Result) addBatch(now time.Time, step string, pods, unavailable int, more bool) {
	r.Upgraded, r.Batches = r.Upgraded+pods, r.Batches+1
	after := metav1.Duration{Duration: now.Sub(r.Begin.Time)}
	if !more {
		r.Events = append(r.Events, Event{After: after, Step: step})
	}
	event := &r.Events[len(r.Events)-1]
	event.Upgraded, event.Batches, event.Unavailable = event.Upgraded+pods, event.Batches+1, max(event.Unavailable, unavailable)
	if more {
		event.LastAfter = &after
	}
}

// add adds an event, unless the last event has the same step and the same message.
func (r *Result) add(event Event) {
	if last := len(r.Events) - 1; last >= 0 && r.Events[last].Message == event.Message && r.Events[last].Step == event.Step {
		return
	}
	r.Events = append(r.Events, event)
}

// whyEnded describes why a rollout without remaining pods ended.
func (s *simulation) whyEnded(plan *rollout.Plan) string {
	strategy, old := &s.set.Spec.UpdateStrategy, plan.Counts.Matched-plan.Counts.Updated
	switch {
	case plan.Counts.Matched == 0:
		return "the SidecarSet matches no pods (kubectl sidecarset why " + s.set.Name + ")"
	case plan.Phase == protocol.PhaseNotUpdate:
		return "spec.updateStrategy.type is NotUpdate, so no pod is upgraded"
	case plan.Phase == protocol.PhasePartitionReached && strategy.Partition != nil:
		return fmt.Sprintf("spec.updateStrategy.partition %s keeps %s at the old version", strategy.Partition.String(), rollout.Count(old, "pod"))
	case s.result.ToUpgrade == 0 && strategy.Selector != nil:
		return "spec.updateStrategy.selector selects no pod that can be upgraded in place"
	case s.result.ToUpgrade == 0:
		return "no pod can be upgraded in place"
	case plan.Counts.NotUpgradable > 0:
		return fmt.Sprintf("complete; not upgraded: %s, which cannot be upgraded in place", rollout.Count(plan.Counts.NotUpgradable, "pod"))
	case plan.OfJobs > 0:
		return fmt.Sprintf("complete; not upgraded: %s, of which Jobs own %d; pods of Jobs keep their version until their end", rollout.Count(old, "pod"), plan.OfJobs)
	case old > 0:
		return fmt.Sprintf("complete; not upgraded: %s, because of spec.updateStrategy.selector", rollout.Count(old, "pod"))
	}
	return "complete"
}

// withOtherImages returns a hypothetical version of a SidecarSet: all its sidecars have other images.
func withOtherImages(set *v1alpha1.SidecarSet) (*v1alpha1.SidecarSet, error) {
	const suffix = "-simulated"
	other := set.DeepCopy()
	other.Generation++
	for i := range other.Spec.Containers {
		other.Spec.Containers[i].Image += suffix
	}
	for i := range other.Spec.InitContainers {
		if c := &other.Spec.InitContainers[i].Container; revision.IsNativeSidecar(c) {
			c.Image += suffix
		}
	}
	return other, revision.WriteHashes(other)
}
