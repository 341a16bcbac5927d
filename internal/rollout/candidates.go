package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// candidateState is the state of a matched pod in a rollout. Pods that wait or can be
// upgraded are the candidates (SPEC §7.2).
type candidateState int

const (
	notSelected candidateState = iota
	alreadyUpdated
	notUpgradable
	waiting
	upgradable
)

// stateOf returns the state of a pod. A nil selector selects every pod.
func stateOf(pod *Pod, selector labels.Selector) candidateState {
	switch {
	case selector != nil && !selector.Matches(labels.Set(pod.Labels)):
		return notSelected
	case pod.Updated:
		return alreadyUpdated
	case !pod.Upgradable:
		return notUpgradable
	case pod.Waits():
		return waiting
	}
	return upgradable
}

// Selected reports whether the update selector selects a pod. A nil selector selects
// every pod.
func Selected(updateSelector *metav1.LabelSelector, pod *corev1.Pod) (bool, error) {
	selector, err := compile(updateSelector)
	return err == nil && (selector == nil || selector.Matches(labels.Set(pod.Labels))), err
}

// compile returns nil without an update selector.
func compile(updateSelector *metav1.LabelSelector) (labels.Selector, error) {
	if updateSelector == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(updateSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.updateStrategy.selector: %w", err)
	}
	return selector, nil
}
