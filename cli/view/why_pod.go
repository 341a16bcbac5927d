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
	"github.com/outrigger/outrigger/internal/policy"
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
	// Webhook is the webhook of pods; nil if it is not known.
	Webhook *admissionv1.MutatingWebhook
	// WebhookAbsent says that it is known not to be there.
	WebhookAbsent bool
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

type explanation func(*injection) string

func because(text string) explanation { return func(*injection) string { return text } }

// injectionChain names the rule by which a pod was not injected; injected pods come first.
func injectionChain() policy.Chain[*injection, explanation] {
	return policy.Chain[*injection, explanation]{
		{When: (*injection).injected, Then: because("its annotation " + v1alpha1.InjectedListAnnotation + " names the set")},
		{When: func(i *injection) bool { return match.Mirror(i.Pod) }, Then: because("it mirrors a static pod, which the kubelet runs from a file")},
		{When: func(i *injection) bool { return i.scopeErr != nil }, Then: func(i *injection) string { return "a selector of the set cannot be read: " + i.scopeErr.Error() }},
		{When: func(i *injection) bool { return match.MatchesNothing(i.set.Spec.Selector) }, Then: because("spec.selector is empty, which matches nothing")},
		{When: func(i *injection) bool { return !i.scope.Labels(i.Pod.Labels) }, Then: (*injection).unselected},
		{When: func(i *injection) bool { return !i.scope.Namespace(i.Pod.Namespace, i.NamespaceLabels) }, Then: (*injection).outOfScope},
		{When: func(i *injection) bool { return match.Critical(i.Pod) }, Then: because("pods of priority class system-node-critical in kube-system are left alone")},
		{When: func(i *injection) bool { return i.Pod.Namespace == i.SystemNamespace }, Then: because("it is in Outrigger's own namespace")},
		{When: (*injection).optedOut, Then: because("its namespace has the label " + v1alpha1.InjectionLabel + "=" + v1alpha1.InjectionDisabled)},
		{When: (*injection).older, Then: because("it is older than the set: pods are injected when they are created")},
		{When: func(i *injection) bool { return i.set.Spec.InjectionStrategy.Paused }, Then: because("spec.injectionStrategy.paused is true")},
		{When: func(i *injection) bool { return i.WebhookAbsent }, Then: because("the webhook of pods is not installed (MutatingWebhookConfiguration outrigger)")},
		{When: (*injection).switchedOff, Then: because("the webhook of pods is not switched on: it has no rules until the webhook role has been reachable")},
		{When: func(i *injection) bool { return i.unasked() != "" }, Then: (*injection).unasked},
		{When: (*injection).failOpen, Then: because("the webhook's failurePolicy is Ignore: it was away when the pod was created, or the pod's labels or the set's selector changed since")},
		{When: func(*injection) bool { return true }, Then: (*injection).otherwise},
	}
}

func (i *injection) injected() bool { return record.Injected(i.Pod.Annotations, i.set.Name) }

func (i *injection) unselected() string {
	return "spec.selector does not match its labels: it wants " + metav1.FormatLabelSelector(i.set.Spec.Selector)
}

func (i *injection) outOfScope() string {
	if one := i.scope.OneNamespace(); one != "" && one != i.Pod.Namespace {
		return "the set is for namespace " + one
	}
	return "spec.namespaceSelector does not match its namespace: it wants " + metav1.FormatLabelSelector(i.set.Spec.NamespaceSelector)
}

func (i *injection) optedOut() bool {
	return i.NamespaceLabels[v1alpha1.InjectionLabel] == v1alpha1.InjectionDisabled
}

func (i *injection) older() bool { return i.Pod.CreationTimestamp.Before(&i.set.CreationTimestamp) }

func (i *injection) switchedOff() bool { return i.Webhook != nil && len(i.Webhook.Rules) == 0 }

func (i *injection) failOpen() bool {
	return i.Webhook != nil && i.Webhook.FailurePolicy != nil && *i.Webhook.FailurePolicy == admissionv1.Ignore
}

// unasked names the selector of the webhook that leaves the pod out; empty if none does.
func (i *injection) unasked() string {
	if i.Webhook == nil {
		return ""
	}
	for _, one := range []struct {
		field    string
		selector *metav1.LabelSelector
		labels   map[string]string
	}{
		{"namespaceSelector", i.Webhook.NamespaceSelector, i.NamespaceLabels},
		{"objectSelector", i.Webhook.ObjectSelector, i.Pod.Labels},
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

// criticalCondition is the match condition that is installed; the chain has its rule.
const criticalCondition = "not-system-node-critical"

func (i *injection) otherwise() string {
	text := "the webhook was not installed or injection was paused when it was created, or the pod's labels or the set's selector changed since"
	if i.Webhook == nil {
		return text
	}
	var names []string
	for _, condition := range i.Webhook.MatchConditions {
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
func NewPodWhy(in PodWhyInput) (*PodWhy, error) {
	w := &PodWhy{Namespace: in.Pod.Namespace, Name: in.Pod.Name, Sets: []SetWhy{}}
	rules := injectionChain()
	for n := range in.Sets {
		i := &injection{PodWhyInput: in, set: &in.Sets[n]}
		i.scope, i.scopeErr = match.NewScope(&i.set.Spec)
		one := SetWhy{Set: i.set.Name, Injected: i.injected(), Why: rules.Decide(i)(i)}
		if one.Injected {
			var err error
			if one.Upgrade, err = i.upgrade(); err != nil {
				return nil, err
			}
		}
		w.Sets = append(w.Sets, one)
	}
	return w, nil
}

// upgrade says where an injected pod stands in the rollout.
func (i *injection) upgrade() (string, error) {
	version, err := podstate.NewVersion(i.set)
	if err != nil {
		return "", err
	}
	state, err := version.Of(i.Pod)
	if err != nil {
		// This is the answer: rollouts leave such a pod out.
		return "left alone: what is recorded in its annotations cannot be read: " + err.Error(), nil //nolint:nilerr // see above
	}
	switch {
	case !match.Active(i.Pod):
		return "not counted: it has ended, or is being deleted", nil
	case i.scopeErr != nil || !i.scope.Labels(i.Pod.Labels) || !i.scope.Namespace(i.Pod.Namespace, i.NamespaceLabels):
		return "left alone: the set does not match it any longer", nil
	case !state.Complete:
		return "left alone: it lacks containers of the set", nil
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
	return text, nil
}

// waits says what an old pod waits for, as far as the set tells.
func (i *injection) waits() string {
	strategy := &i.set.Spec.UpdateStrategy
	switch {
	case strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "upgrades are off (spec.updateStrategy.type NotUpdate)"
	case strategy.Paused:
		return "spec.updateStrategy.paused is true"
	case i.set.Status.Rollout != nil && i.set.Status.Rollout.Hold != nil:
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
