package view

import (
	"fmt"
	"io"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
)

// PodWhyInput is what a PodWhy is made from.
type PodWhyInput struct {
	Pod  *corev1.Pod
	Sets []v1alpha1.SidecarSet
	// NamespaceLabels are those of the pod's namespace.
	NamespaceLabels map[string]string
	SystemNamespace string
	Webhook         Webhook
}

// Webhook is the webhook of pods, as far as it is known.
type Webhook struct {
	// Installed is nil if it is not known, or absent.
	Installed *admissionv1.MutatingWebhook
	Absent    bool
}

// PodWhy says of each set what became of a pod.
type PodWhy struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Sets      []SetWhy `json:"sets"`
}

// SetWhy is the decision about one set.
type SetWhy struct {
	Set      string `json:"sidecarSet"`
	Injected bool   `json:"injected"`
	// Why names the rule that decided.
	Why string `json:"why"`
	// Upgrade says where an injected pod stands.
	Upgrade string `json:"upgrade,omitempty"`
}

// injection is a pod and a set.
type injection struct {
	PodWhyInput
	set      *v1alpha1.SidecarSet
	scope    match.Scope
	scopeErr error
}

// reason names the rule that decided about the injection. The rules of the pod and the
// SidecarSet come before those of the webhook.
func (i *injection) reason() string {
	switch {
	case i.injected():
		return "its annotation " + v1alpha1.InjectedListAnnotation + " names the set"
	case match.Mirror(i.Pod):
		return "it mirrors a static pod, which the kubelet runs from a file"
	case i.scopeErr != nil:
		return "a selector of the set cannot be read: " + i.scopeErr.Error()
	case match.MatchesNothing(i.set.Spec.Selector):
		return "spec.selector is empty, which matches nothing"
	case !i.scope.Labels(i.Pod.Labels):
		return "spec.selector does not match its labels: it wants " + metav1.FormatLabelSelector(i.set.Spec.Selector)
	case !i.scope.Namespace(i.Pod.Namespace, i.NamespaceLabels):
		return i.outOfScope()
	case match.Critical(i.Pod):
		return "pods of priority class system-node-critical or system-cluster-critical in kube-system are left alone"
	case i.Pod.Namespace == i.SystemNamespace:
		return "it is in Outrigger's own namespace"
	case i.NamespaceLabels[v1alpha1.InjectionLabel] == v1alpha1.InjectionDisabled:
		return "its namespace has the label " + v1alpha1.InjectionLabel + "=" + v1alpha1.InjectionDisabled
	case i.Pod.CreationTimestamp.Before(&i.set.CreationTimestamp):
		return "it is older than the set: pods are injected when they are created"
	case i.set.DeletionTimestamp != nil:
		return "the set is being deleted"
	case i.set.Spec.InjectionStrategy.Paused:
		return "spec.injectionStrategy.paused is true"
	}
	return i.webhookReason()
}

func (i *injection) webhookReason() string {
	installed := i.Webhook.Installed
	switch {
	case i.Webhook.Absent:
		return "the webhook of pods is not installed (MutatingWebhookConfiguration outrigger)"
	case installed == nil:
		return uninjected
	case len(installed.Rules) == 0:
		return "the webhook of pods is not switched on: it has no rules until the webhook role has been reachable"
	case i.unasked() != "":
		return i.unasked()
	case installed.FailurePolicy != nil && *installed.FailurePolicy == admissionv1.Ignore:
		return "the webhook's failurePolicy is Ignore: it was away when the pod was created, or the pod's labels or the set's selector changed since"
	}
	return i.otherwise()
}

func (i *injection) injected() bool { return record.Injected(i.Pod.Annotations, i.set.Name) }

func (i *injection) outOfScope() string {
	if one := i.scope.OneNamespace(); one != "" && one != i.Pod.Namespace {
		return "the set is for namespace " + one
	}
	return "spec.namespaceSelector does not match its namespace: it wants " + metav1.FormatLabelSelector(i.set.Spec.NamespaceSelector)
}

// unasked names the selector of the webhook that leaves the pod out; empty if none does.
func (i *injection) unasked() string {
	for _, one := range []struct {
		field    string
		selector *metav1.LabelSelector
		labels   map[string]string
	}{
		{"namespaceSelector", i.Webhook.Installed.NamespaceSelector, i.NamespaceLabels},
		{"objectSelector", i.Webhook.Installed.ObjectSelector, i.Pod.Labels},
	} {
		if one.selector == nil {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(one.selector); err == nil && !selector.Matches(labels.Set(one.labels)) {
			return "the webhook of pods is not asked about it: its " + one.field + " wants " + metav1.FormatLabelSelector(one.selector)
		}
	}
	return ""
}

// criticalCondition is the match condition that is installed; reason has its rule.
const criticalCondition = "not-system-critical"

// uninjected is the reason of a pod that no rule left out.
const uninjected = "the webhook was not installed or injection was paused when it was created, or the pod's labels or the set's selector changed since"

func (i *injection) otherwise() string {
	text := uninjected
	var names []string
	for _, condition := range i.Webhook.Installed.MatchConditions {
		if condition.Name != criticalCondition {
			names = append(names, condition.Name)
		}
	}
	if len(names) > 0 {
		text += ", or a match condition of the webhook leaves it out (" + strings.Join(names, ", ") + ")"
	}
	return text
}

// NewPodWhy decides for each set, in their order.
func NewPodWhy(in PodWhyInput) *PodWhy {
	w := &PodWhy{Namespace: in.Pod.Namespace, Name: in.Pod.Name, Sets: []SetWhy{}}
	for n := range in.Sets {
		i := &injection{PodWhyInput: in, set: &in.Sets[n]}
		i.scope, i.scopeErr = match.NewScope(&i.set.Spec)
		one := SetWhy{Set: i.set.Name, Injected: i.injected(), Why: i.reason()}
		if one.Injected {
			one.Upgrade = i.upgrade()
		}
		w.Sets = append(w.Sets, one)
	}
	return w
}

// upgrade says where an injected pod stands in the rollout. What keeps that from being
// known is the answer, too: the other sets are explained all the same.
func (i *injection) upgrade() string {
	version, err := podstate.NewVersion(i.set)
	if err != nil {
		return "left alone: " + err.Error()
	}
	state, err := version.Of(i.Pod)
	if err != nil {
		return "left alone: " + unreadableRecord + err.Error()
	}
	switch {
	case !match.Active(i.Pod):
		return "not counted: it has ended, or is being deleted"
	case i.scopeErr != nil || !i.scope.Labels(i.Pod.Labels) || !i.scope.Namespace(i.Pod.Namespace, i.NamespaceLabels):
		return "left alone: the set does not match it any longer"
	case !state.Complete:
		return "left alone: " + lacksContainers
	}
	s := standing{Pod: &rollout.Pod{Pod: i.Pod, State: state}, set: i.set.Name, version: version}
	pod := s.pod()
	text := string(pod.Phase)
	if pod.Why != "" {
		text += ": " + pod.Why
	}
	if pod.Phase == PodOld {
		text += ": " + i.waits()
	}
	return text
}

// waits says what an old pod waits for, as far as the set tells.
func (i *injection) waits() string {
	strategy := &i.set.Spec.UpdateStrategy
	switch {
	case strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "upgrades are off (spec.updateStrategy.type NotUpdate)"
	case strategy.Paused:
		return "spec.updateStrategy.paused is true"
	case i.set.Status.Rollout != nil && i.set.Status.Rollout.Pause != nil:
		return "the run is held " + heldBy(holdOf(RolloutInput{Set: i.set}))
	}
	for _, c := range conditions(i.set) {
		if c.Type == v1alpha1.ConditionProgressing {
			return c.Reason + ", " + c.Message
		}
	}
	return "its turn has not come"
}

// Write writes a line for each set.
func (w *PodWhy) Write(out io.Writer, t Text) error {
	lines := []string{"pod/" + t.Paint.in(Strong, w.Name) + " in " + w.Namespace}
	if len(w.Sets) == 0 {
		lines = append(lines, "there is no SidecarSet")
	}
	for _, one := range w.Sets {
		word := t.Paint.in(Bad, "not injected")
		if one.Injected {
			word = t.Paint.in(Good, "injected")
		}
		lines = append(lines, fmt.Sprintf("  sidecarset/%s: %s, %s", one.Set, word, one.Why))
		if one.Upgrade != "" {
			lines = append(lines, "    "+one.Upgrade)
		}
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}
