package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// Budgets are the PodDisruptionBudgets of the namespaces of a rollout (SPEC §11.11).
type Budgets struct {
	byNamespace map[string][]*budget
}

// budget is one PodDisruptionBudget.
type budget struct {
	name     string
	selector labels.Selector
	// allowed is the number of healthy pods that may become unavailable. healthy is the number of healthy pods,
	// and needed is the number of pods that must be healthy.
	allowed, healthy, needed int
	// problem is the reason why no pod of the budget may become unavailable, or is empty.
	problem string
}

// NewBudgets reads the PodDisruptionBudgets of the namespaces in pods. pods contains all pods of these
// namespaces. The status of a budget may be some seconds old, so NewBudgets also counts the healthy pods, and
// uses the lower number.
func NewBudgets(all []policyv1.PodDisruptionBudget, pods map[string][]*corev1.Pod) *Budgets {
	budgets := &Budgets{byNamespace: map[string][]*budget{}}
	for i := range all {
		if found, ok := pods[all[i].Namespace]; ok {
			budgets.byNamespace[all[i].Namespace] = append(budgets.byNamespace[all[i].Namespace], newBudget(&all[i], found))
		}
	}
	return budgets
}

func newBudget(of *policyv1.PodDisruptionBudget, pods []*corev1.Pod) *budget {
	b := &budget{name: of.Namespace + "/" + of.Name}
	var err error
	if b.selector, err = metav1.LabelSelectorAsSelector(of.Spec.Selector); err != nil {
		// The budget could select any pod of its namespace.
		b.selector, b.problem = labels.Everything(), "spec.selector: "+err.Error()
		return b
	}
	status, selected := &of.Status, 0
	for _, pod := range pods {
		if !match.Active(pod) || !b.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		selected++
		if _, evicted := status.DisruptedPods[pod.Name]; !evicted && healthy(pod) && !podstate.ResizeMayRestart(pod) {
			b.healthy++
		}
	}
	desired, err := desiredHealthy(&of.Spec, max(selected, int(status.ExpectedPods)))
	switch {
	case err != nil:
		b.problem = err.Error()
		return b
	case status.ObservedGeneration < of.Generation:
		b.problem = "its status is out of date"
		return b
	}
	b.healthy, b.needed = min(b.healthy, int(status.CurrentHealthy)), max(desired, int(status.DesiredHealthy))
	b.allowed = max(min(int(status.DisruptionsAllowed), b.healthy-b.needed), 0)
	return b
}

// desiredHealthy returns the number of pods that must be healthy, with the formula of the Kubernetes disruption
// controller. expected is the number of pods of the budget.
func desiredHealthy(spec *policyv1.PodDisruptionBudgetSpec, expected int) (int, error) {
	switch {
	case spec.MaxUnavailable != nil:
		most, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, expected, true)
		if err != nil {
			return 0, fmt.Errorf("spec.maxUnavailable: %w", err)
		}
		return max(expected-most, 0), nil
	case spec.MinAvailable != nil:
		least, err := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, expected, true)
		if err != nil {
			return 0, fmt.Errorf("spec.minAvailable: %w", err)
		}
		return least, nil
	}
	return 0, nil
}

// healthy reports whether a pod is ready and is not being deleted, and no upgrade by Outrigger is about to
// restart a container of the pod.
func healthy(pod *corev1.Pod) bool {
	if !podstate.True(pod, corev1.PodReady) || pod.DeletionTimestamp != nil {
		return false
	}
	states, err := record.InPlaceStates(pod.Annotations)
	if err != nil {
		return true
	}
	for _, state := range states {
		if state.Ours() && len(podstate.Pending(pod, state)) > 0 {
			return false
		}
	}
	return true
}

// disruptions applies PodDisruptionBudgets to the pods that upgrades make unavailable.
type disruptions struct {
	*Budgets
	taken map[*budget]int
}

func newDisruptions(budgets *Budgets) *disruptions {
	return &disruptions{Budgets: budgets, taken: map[*budget]int{}}
}

// needs reports whether an upgrade makes a healthy pod unavailable. A pod whose standby twins are not reset
// yet also needs a slot, because the reset restarts a container.
func (d *disruptions) needs(pod *Pod) bool {
	return len(d.byNamespace[pod.Namespace]) > 0 && !pod.RestartsNothing && !pod.ResizeRestarts && healthy(pod.Pod)
}

func (d *disruptions) full(pod *Pod) bool { return d.exhausted(pod) != nil }

// take counts only a healthy pod, because allowed is a number of healthy pods.
func (d *disruptions) take(pod *Pod) {
	if !healthy(pod.Pod) || podstate.ResizeMayRestart(pod.Pod) {
		return
	}
	for _, one := range d.byNamespace[pod.Namespace] {
		if one.selector.Matches(labels.Set(pod.Labels)) {
			d.taken[one]++
		}
	}
}

func (d *disruptions) exhausted(pod *Pod) *budget {
	for _, one := range d.byNamespace[pod.Namespace] {
		if d.taken[one] >= one.allowed && one.selector.Matches(labels.Set(pod.Labels)) {
			return one
		}
	}
	return nil
}

func (d *disruptions) wants(pod *Pod) string {
	one := d.exhausted(pod)
	if one.problem != "" {
		return fmt.Sprintf("PodDisruptionBudget %s (%s)", one.name, one.problem)
	}
	return fmt.Sprintf("PodDisruptionBudget %s (%d healthy, %d needed)", one.name, one.healthy-d.taken[one], one.needed)
}
