package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
)

// PodWhyInput contains the data from which a PodWhy is computed.
type PodWhyInput struct {
	Pod  *corev1.Pod
	Sets []v1alpha1.SidecarSet
	// NamespaceLabels are the labels of the namespace of the pod.
	NamespaceLabels map[string]string
	SystemNamespace string
	Webhook         Webhook
	Nodes           Nodes
	// Revisions returns the revisions of a SidecarSet. If Revisions is nil, the output does not name the
	// fields that differ.
	Revisions func(*v1alpha1.SidecarSet) []*appsv1.ControllerRevision
	Fault     Fault
}

// PodWhy explains the injection and the upgrade of a pod, for each SidecarSet.
type PodWhy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// NodeProblem describes the node of the pod if the node does not exist, or if neither the node nor the pod
	// is ready.
	NodeProblem string   `json:"nodeProblem,omitempty"`
	Sets        []SetWhy `json:"sets"`
	// Fault is the part of the installation that does not respond.
	Fault Fault `json:"fault,omitzero"`
}

// SetWhy explains the injection and the upgrade of a pod for one SidecarSet.
type SetWhy struct {
	Set      string `json:"sidecarSet"`
	Injected bool   `json:"injected"`
	// Reason describes the rule that decided about the injection.
	Reason string `json:"why"`
	// Upgrade is the phase of an injected pod, with its reason.
	Upgrade string `json:"upgrade,omitempty"`
}

// injection is the injection of a SidecarSet into a pod.
type injection struct {
	PodWhyInput
	set      *v1alpha1.SidecarSet
	scope    match.Scope
	scopeErr error
	// inProgress is set if upgrade has found an upgrade in progress.
	inProgress bool
}

// reason describes the rule that decided about the injection. The rules of the pod and of the SidecarSet
// precede the rules of the webhook.
func (i *injection) reason() string {
	switch {
	case i.injected():
		return "its annotation " + v1alpha1.InjectedListAnnotation + " names the SidecarSet"
	case match.Mirror(i.Pod):
		return "it mirrors a static pod, which the kubelet runs from a file"
	case i.scopeErr != nil:
		return "a selector of the SidecarSet cannot be read: " + i.scopeErr.Error()
	case match.MatchesNothing(i.set.Spec.Selector):
		return "spec.selector is empty, which matches nothing"
	case !i.scope.Labels(i.Pod.Labels):
		return "spec.selector does not match its labels: it requires " + metav1.FormatLabelSelector(i.set.Spec.Selector)
	case !i.scope.Namespace(i.Pod.Namespace, i.NamespaceLabels):
		return i.outOfScope()
	case match.Critical(i.Pod):
		return "pods of priority class system-node-critical or system-cluster-critical in kube-system are never injected"
	case i.Pod.Namespace == i.SystemNamespace:
		return "it is in Outrigger's own namespace"
	case i.NamespaceLabels[v1alpha1.InjectionLabel] == v1alpha1.InjectionDisabled:
		return "its namespace has the label " + v1alpha1.InjectionLabel + "=" + v1alpha1.InjectionDisabled + " (kubectl label namespace " + i.Pod.Namespace + " " + v1alpha1.InjectionLabel + "-)" + i.thenRecreate()
	case i.Pod.CreationTimestamp.Before(&i.set.CreationTimestamp):
		return "it is older than the SidecarSet: pods are injected when they are created" + i.recreate()
	case i.set.DeletionTimestamp != nil:
		return "the SidecarSet is being deleted"
	case i.set.Spec.InjectionStrategy.Paused:
		return "spec.injectionStrategy.paused is true (" + resumeInjection(i.set.Name) + ")" + i.thenRecreate()
	}
	return i.webhookReason()
}

func (i *injection) recreate() string { return recreate(i.Pod, i.set.Name) }

// recreateWithoutRecord returns the remedy for a pod whose record cannot be read. A copy of the pod would
// contain the unreadable record.
func (i *injection) recreateWithoutRecord() string {
	if podstate.Controlled(i.Pod) {
		return i.recreate()
	}
	return " (no controller recreates it: delete it, and create it from a manifest without this annotation)"
}

// thenRecreate returns the second command for a pod that was created while a setting prevented the injection.
func (i *injection) thenRecreate() string { return "; then recreate the pod" + i.recreate() }

// recreate returns the command that recreates a pod. If the pod has no controller, the command deletes the
// pod and creates the pod again.
func recreate(pod *corev1.Pod, set string) string {
	if podstate.CountsRestarts(pod) {
		return "" // The next run of the Job has the newest content.
	}
	if podstate.Controlled(pod) {
		return " (" + restartCommand(set) + ")"
	}
	return fmt.Sprintf(" (no controller recreates it: kubectl get pod %s -n %s -o yaml | kubectl replace --force -f -)", pod.Name, pod.Namespace)
}

// uninjected is the reason for a pod that was not injected, although no current rule excludes the pod and the
// labels of the pod have not changed.
const uninjected = "it was created without the sidecars, and matches now: since then, the SidecarSet's selector or the labels of its namespace " +
	"(such as outrigger.io/injection=disabled) have changed, injection was resumed, or the webhook was installed"

// relabelled returns the reason for an uninjected pod whose labels were written after the creation of the pod.
// The reason names the field manager. For other pods, relabelled returns an empty string.
func (i *injection) relabelled() string {
	for _, entry := range i.Pod.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(i.Pod.CreationTimestamp.Time) && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:labels"`) {
			return "it was relabelled after its creation (by " + entry.Manager + " at " + entry.Time.UTC().Format(time.RFC3339) + "), and pods are injected when they are created"
		}
	}
	return ""
}

func (i *injection) webhookReason() string {
	installed := i.Webhook.Installed
	switch {
	case i.Webhook.Absent:
		return "the webhook of pods is not installed (MutatingWebhookConfiguration outrigger; kubectl sidecarset check)"
	case installed == nil:
		return cmp.Or(i.relabelled(), uninjected) + i.recreate()
	case len(installed.Rules) == 0:
		return "the webhook of pods is not activated: it has no rules until the webhook role has been reachable (kubectl sidecarset check)"
	}
	bypassed := cmp.Or(bypasses("namespaceSelector", installed.NamespaceSelector, i.NamespaceLabels),
		bypasses("objectSelector", installed.ObjectSelector, i.Pod.Labels))
	switch relabelled := i.relabelled(); {
	case bypassed != "":
		return bypassed
	case relabelled != "":
		return relabelled + i.recreate()
	case installed.FailurePolicy != nil && *installed.FailurePolicy == admissionv1.Ignore:
		return "the webhook's failurePolicy is Ignore: it was unreachable when the pod was created, or the labels of the pod or of its namespace, or the SidecarSet's selector, changed since" + i.recreate()
	}
	if conditions := match.UnknownConditions(installed, i.scope); len(conditions) > 0 {
		return uninjected + ", or a match condition of the webhook leaves it out (" + strings.Join(conditions, ", ") + ")" + i.recreate()
	}
	return uninjected + i.recreate()
}

// bypasses returns a reason if selector, which is the given field of the webhook, does not match the labels in
// of. A selector that cannot be read matches all labels.
func bypasses(field string, selector *metav1.LabelSelector, of map[string]string) string {
	if selector == nil {
		return ""
	}
	if compiled, err := metav1.LabelSelectorAsSelector(selector); err != nil || compiled.Matches(labels.Set(of)) {
		return ""
	}
	return "the webhook of pods does not cover this pod: its " + field + " requires " + metav1.FormatLabelSelector(selector)
}

func (i *injection) injected() bool { return record.Injected(i.Pod.Annotations, i.set.Name) }

func (i *injection) outOfScope() string {
	if one := i.scope.OneNamespace(); one != "" && one != i.Pod.Namespace {
		return "the SidecarSet is for namespace " + one
	}
	return "spec.namespaceSelector does not match its namespace: it requires " + metav1.FormatLabelSelector(i.set.Spec.NamespaceSelector)
}

// NewPodWhy explains a pod for each SidecarSet, in the order of the SidecarSets.
func NewPodWhy(in PodWhyInput) *PodWhy {
	w := &PodWhy{Namespace: in.Pod.Namespace, Name: in.Pod.Name, Sets: []SetWhy{}, Fault: in.Fault}
	stuck := (match.Active(in.Pod) || in.Pod.DeletionTimestamp != nil) && !podstate.True(in.Pod, corev1.PodReady)
	// If the node of a ready pod does not exist, the API server shows the pod as ready until Kubernetes
	// deletes the pod.
	lost := in.Nodes.Get != nil && in.Pod.Spec.NodeName != "" && match.Active(in.Pod) && in.Nodes.missing(in.Pod.Spec.NodeName)
	for n := range in.Sets {
		i := &injection{PodWhyInput: in, set: &in.Sets[n]}
		i.scope, i.scopeErr = match.NewScope(&i.set.Spec)
		one := SetWhy{Set: i.set.Name, Injected: i.injected(), Reason: i.reason()}
		if one.Injected {
			one.Upgrade = i.upgrade()
		}
		stuck = stuck || i.inProgress
		w.Sets = append(w.Sets, one)
	}
	if stuck || lost {
		w.NodeProblem = in.nodeProblem()
	}
	return w
}

// nodeProblem describes the problem of the node of a pod, with a command. Without a problem, nodeProblem
// returns an empty string.
func (in *PodWhyInput) nodeProblem() string {
	problem, command := in.Nodes.problem(&Pod{Namespace: in.Pod.Namespace, Name: in.Pod.Name, Node: in.Pod.Spec.NodeName})
	if problem == "" {
		return ""
	}
	return problem + ": " + command
}

// upgrade returns the phase of an injected pod. An error is a part of the returned text, so that the other
// SidecarSets are also explained.
func (i *injection) upgrade() string {
	version, err := podstate.NewVersion(i.set)
	if err != nil {
		return "not managed: " + err.Error()
	}
	state, err := version.Of(i.Pod)
	switch {
	case err != nil:
		return "not managed: " + unreadableRecord + err.Error() + i.recreateWithoutRecord()
	case !match.Active(i.Pod):
		return "not counted: it has ended, or is being deleted"
	case i.scopeErr != nil || !i.scope.Labels(i.Pod.Labels) || !i.scope.Namespace(i.Pod.Namespace, i.NamespaceLabels):
		return "not managed: the SidecarSet does not match it any more"
	case !state.Complete:
		return "not managed: " + lacksContainers + i.recreate()
	}
	pod := newPod(&rollout.Pod{Pod: i.Pod, State: state}, version, "")
	i.inProgress = pod.tone() == Busy
	switch pod.Phase {
	case PodOld:
		pod.Reason = i.waitsFor()
	case PodFailing:
		pod.Reason += i.failingNext(&pod)
	case PodNotUpgradable:
		pod.Reason += i.difference() + i.recreate()
	case PodUnready, PodUpgrading, PodMigrating, PodWaiting:
		pod.Reason += i.seeEvents(&pod)
	}
	if pod.Reason == "" {
		return string(pod.Phase)
	}
	return string(pod.Phase) + ": " + pod.Reason
}

// failingNext returns the next step for a pod whose sidecar cannot start.
func (i *injection) failingNext(pod *Pod) string {
	switch {
	case !pod.inPlace:
		if podstate.CountsRestarts(i.Pod) {
			return "; " + countsRestarts
		}
		return "; " + differs + i.difference() + i.recreate()
	case !pod.updated:
		return "; " + i.waitsFor()
	}
	var sorted []*appsv1.ControllerRevision
	if i.Revisions != nil {
		sorted = i.Revisions(i.set)
	}
	return " (" + UndoCommand(i.set, sorted) + ")"
}

// difference returns a text with the fields that prevent an upgrade in place.
func (i *injection) difference() string {
	if i.Revisions == nil || podstate.CountsRestarts(i.Pod) {
		return ""
	}
	known := (&Input{Set: i.set, Revisions: i.Revisions(i.set)}).revisions()
	return strings.TrimPrefix(known.whyNotInPlace(i.Pod, &i.set.Spec), notInPlace)
}

// seeEvents returns the command that shows the events of a pod that is not ready. If the node of the pod is
// lost, seeEvents returns an empty string. During an outage, seeEvents returns the reason of the outage
// instead, because the outage may stop the upgrade.
func (i *injection) seeEvents(pod *Pod) string {
	if i.nodeProblem() != "" {
		return ""
	}
	c := meta.FindStatusCondition(i.set.Status.Conditions, v1alpha1.ConditionProgressing)
	if c != nil && isOutage(c.Reason) && pod.tone() == Busy {
		return "; " + c.Reason + " (" + checkCommand + ")"
	}
	return " (" + describeCommand(pod) + ")"
}

// waitsFor returns the reason why an old pod is not upgraded, if the SidecarSet shows the reason.
func (i *injection) waitsFor() string {
	strategy, pause := &i.set.Spec.UpdateStrategy, pauseOf(i.set, nil)
	switch {
	case strategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return "upgrades are disabled (spec.updateStrategy.type NotUpdate; " + PatchStrategy(i.set.Name, "type", `"RollingUpdate"`) + ")"
	case strategy.Paused:
		return PausedBySpec(i.set.Name)
	case pause != nil:
		return "the run is paused " + PausedBySignal(i.set.Name, pause)
	}
	next := " (kubectl sidecarset why sidecarset/" + i.set.Name + ")"
	if c := meta.FindStatusCondition(i.set.Status.Conditions, v1alpha1.ConditionProgressing); c != nil {
		return c.Reason + ", " + c.Message + next
	}
	return "other pods are upgraded first" + next
}

// Text returns a line for each SidecarSet.
func (w *PodWhy) Text(s Style) string {
	lines := []string{"pod/" + s.Paint.in(Strong, w.Name) + " in " + w.Namespace}
	if w.NodeProblem != "" {
		lines = append(lines, "  "+w.NodeProblem)
	}
	if len(w.Sets) == 0 {
		lines = append(lines, "there is no SidecarSet")
	}
	for _, one := range w.Sets {
		word := s.Paint.in(Bad, "not injected")
		if one.Injected {
			word = s.Paint.in(Good, "injected")
		}
		lines = append(lines, fmt.Sprintf("  sidecarset/%s: %s, %s", one.Set, word, one.Reason))
		if one.Upgrade != "" {
			lines = append(lines, "    "+one.Upgrade)
		}
	}
	return text(lines) + w.Fault.Line()
}
