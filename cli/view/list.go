package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// Summaries contains a summary of each SidecarSet of a cluster.
type Summaries []Summary

// Summary is the status of a SidecarSet.
type Summary struct {
	Name     string `json:"name"`
	Revision string `json:"revision,omitempty"`
	Matched  int32  `json:"matched"`
	Updated  int32  `json:"updated"`
	Ready    int32  `json:"ready"`
	// Headline is a short phrase for the state of the rollout, such as AwaitingApproval (step 2 of 4).
	Headline string `json:"headline"`
	// BakesUntil is the end of the bake time of the current step, or nil outside a bake time.
	BakesUntil *time.Time `json:"bakesUntil,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	Degraded   string     `json:"degraded,omitempty"`
	Missing    bool       `json:"missing,omitempty"`
	// Injected is the reason why pods lack the sidecars, or why new pods are not injected.
	Injected string `json:"injected,omitempty"`
	// Attention lists the problems that require a user action.
	Attention []string        `json:"attention,omitempty"`
	Pause     *protocol.Pause `json:"hold,omitempty"`
	Images    []Image         `json:"images,omitempty"`
	Created   time.Time       `json:"created"`
	// uninjected is the number of pods that match and lack the sidecars.
	uninjected int
	// NotReady is the pod for which the rollout waits, if the upgrade of this pod has been in progress for too
	// long.
	NotReady *LatePod `json:"notReady,omitempty"`
	// unready is the number of updated pods that are not ready.
	unready int
	// lost describes a lost node, with a command.
	lost string
	// unread is the reason why this command cannot read the run.
	unread string
	// faulty is set if a line about a fault of the installation follows the list. The command in this line has
	// priority.
	faulty bool
	// pausedBy names the field manager that paused the SidecarSet by the spec, with the time of the last write
	// of this manager.
	pausedBy string
}

// ListInput contains the data from which summaries are computed.
type ListInput struct {
	Sets []v1alpha1.SidecarSet
	// Runs contains the answers of open runs by the name of the SidecarSet. The answers may be newer than the
	// status.
	Runs map[string]RunInput
	// Waiting contains, by the name of the SidecarSet, the pod that the status names as an example of the pods
	// for which a rollout waits.
	Waiting map[string]*corev1.Pod
	// Lost contains the lost nodes by the name of the SidecarSet.
	Lost map[string]Lost
	// Fault is the part of the installation that does not respond.
	Fault Fault
	Now   time.Time
}

// Equal reports whether two summaries have the same content. Equal ignores texts that contain an age, because
// an age changes without an event.
func (s Summary) Equal(other Summary) bool {
	if (s.lost == "") != (other.lost == "") {
		return false
	}
	s.pausedBy, s.lost, other.pausedBy, other.lost = "", "", "", ""
	return reflect.DeepEqual(s, other)
}

// NewSummaries returns a summary of each SidecarSet, in the same order.
func NewSummaries(in *ListInput) Summaries {
	found, now := Summaries{}, in.Now
	for i := range in.Sets {
		set := &in.Sets[i]
		run, lost := in.Runs[set.Name], in.Lost[set.Name]
		one := Summary{
			Name: set.Name, Revision: set.Status.LatestRevision, Images: images(&set.Spec), Created: set.CreationTimestamp.Time,
			Matched: set.Status.MatchedPods, Updated: set.Status.UpdatedPods, Ready: set.Status.ReadyPods - int32(lost.Ready), Pause: pauseOf(set, run.Status),
			unready: int(set.Status.UpdatedPods-set.Status.UpdatedReadyPods) + lost.Updated, lost: lost.Note, pausedBy: writerOfPause(set, now),
			unread: run.Unknown, faulty: in.Fault != Fault{},
		}
		if c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionInjected); c != nil && c.Status == metav1.ConditionFalse {
			one.Injected, one.Missing = c.Reason, c.Reason == v1alpha1.ReasonPodsWithoutSidecar
			if one.Missing {
				one.uninjected = podsIn(c.Message)
			}
		}
		if c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing); c != nil {
			one.Reason, one.Message = c.Reason, c.Message
		}
		if c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionDegraded); c != nil && c.Status == "True" {
			one.Degraded = c.Reason
		}
		f := one.facts(set, run.Status, now)
		if f.phase == protocol.PhaseWaiting && f.observed {
			one.NotReady = lateOf(set, in.Waiting[set.Name], now)
		}
		f.late = one.NotReady != nil
		f.silent, f.unreachable = run.NotResponding, run.Unreachable
		one.Headline, one.Attention, one.BakesUntil = headline(f), f.attention(&one), bakesUntil(f.phase, stage.OfStatus(set))
		one.Attention = append(one.Attention, pausesOf(set, f.phase)...)
		one.Attention = append(one.Attention, one.attentionOf(set, &f, in)...)
		found = append(found, one)
	}
	return found
}

// attentionOf returns the problems of pods, of nodes and of the installation.
func (s *Summary) attentionOf(set *v1alpha1.SidecarSet, f *facts, in *ListInput) (found []string) {
	switch waiting := f.phase == protocol.PhaseWaiting && !f.noSlots && f.observed; {
	case f.late:
		found = append(found, podNotReady+s.NotReady.Namespace+"/"+s.NotReady.Name)
	case waiting && unchangedSince(set, in.Now.Add(-noProgressAfter)):
		found = append(found, "NoProgress")
	}
	if reason := in.Fault.Reason; reason != "" && !slices.Contains(s.Attention, reason) {
		found = append(found, reason)
	}
	for _, node := range in.Lost[set.Name].Nodes {
		found = append(found, lostNode+node)
	}
	return found
}

// pausesOf returns the pauses by the spec that the headline does not show.
func pausesOf(set *v1alpha1.SidecarSet, phase protocol.Phase) (found []string) {
	if set.Spec.UpdateStrategy.Paused && phase != protocol.PhasePaused {
		found = append(found, attentionPaused)
	}
	if set.Spec.InjectionStrategy.Paused {
		found = append(found, "InjectionPaused")
	}
	return found
}

const (
	// attentionPaused is the problem of a paused rollout that still has pods to upgrade.
	attentionPaused = "Paused"
	// notObserved is the problem of a SidecarSet whose generation the operator has not observed. A running
	// operator observes a generation within a second.
	notObserved = "NotObserved"
	// temporalNotResponding is the problem of a rollout whose run this command cannot query, because Temporal
	// does not respond. The operator may reach Temporal at another address.
	temporalNotResponding = "TemporalNotResponding"
)

// lostNode precedes the name of a node in Attention. The node is not ready, or does not exist.
const lostNode = "LostNode:"

// noProgressAfter is the time after which a rollout that waits for pods needs attention.
const noProgressAfter = 5 * time.Minute

// unchangedSince reports whether the operator has written the status, but not after the time at. The operator
// writes the status whenever the counts of the rollout change.
func unchangedSince(set *v1alpha1.SidecarSet, at time.Time) bool {
	written := false
	for _, entry := range set.ManagedFields {
		if entry.Subresource != "status" || entry.Time == nil {
			continue
		}
		if written = true; entry.Time.After(at) {
			return false
		}
	}
	return written
}

// Text returns a line for each SidecarSet. In the wide format, a line also contains the revision, the images
// and the message.
func (all Summaries) Text(s Style) string {
	if len(all) == 0 {
		return "No SidecarSets found.\n"
	}
	rows := [][]string{{"NAME", "MATCHED", "UPDATED", "READY", "STATE", "NEEDS ATTENTION", "AGE", "REVISION", "IMAGES", "MESSAGE"}}
	for i := range all {
		one := &all[i]
		rows = append(rows, []string{one.Name, fmt.Sprint(one.Matched), fmt.Sprint(one.Updated), fmt.Sprint(one.Ready),
			withTimeLeft(one.Headline, one.BakesUntil, s.Now), one.attentionText(s.Now), age(s.Now, one.Created), one.Revision, joinImages(one.Images), one.Message})
	}
	if !s.Wide {
		for i := range rows {
			rows[i] = rows[i][:7]
		}
	}
	return table(rows) + all.notes(s.Now)
}

// maxListNotes limits the lines below a list.
const maxListNotes = 5

// notes returns a line with the next command for each of the first SidecarSets that need attention. Pauses
// and lost nodes come first. If this command cannot read the runs of several SidecarSets for the same reason,
// one line represents these SidecarSets.
func (all Summaries) notes(now time.Time) string {
	var urgent, others []string
	seen := map[string]bool{"": true}
	for i := range all {
		one := &all[i]
		if note := one.urgentNote(now); note != "" {
			urgent = append(urgent, one.Name+": "+note)
		} else if note := one.otherNote(); !seen[note] {
			others, seen[note] = append(others, one.Name+": "+note), true
		}
	}
	lines := append(urgent, others...)
	if more := len(lines) - maxListNotes; more > 0 {
		lines = append(lines[:maxListNotes], "and "+rollout.Count(more, "SidecarSet")+" more: kubectl sidecarset status NAME")
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// urgentNote describes the pause or the lost node of a SidecarSet, with the next command. If the SidecarSet
// is not paused and has no lost node, urgentNote returns an empty string.
func (s *Summary) urgentNote(now time.Time) string {
	switch {
	case slices.Contains(s.Attention, attentionPaused) && s.Pause != nil:
		return "paused " + pausedFor(s.Pause, now) + PausedBySignal(s.Name, s.Pause)
	case slices.Contains(s.Attention, attentionPaused):
		return "paused by spec.updateStrategy.paused" + s.pausedBy + " (" + ResumeCommand(s.Name) + ")"
	}
	return s.lost
}

// otherNote returns the next command for a problem that is neither a pause nor a lost node. If the SidecarSet
// has no other problem, if a line about a fault of the installation follows, or if the only problem is a
// generation that is not observed, otherNote returns an empty string.
func (s *Summary) otherNote() string {
	switch {
	case slices.Contains(s.Attention, temporalNotResponding):
		return "this command cannot read the run: " + s.unread
	case len(s.Attention) > 0 && !s.faulty && !slices.Equal(s.Attention, []string{notObserved}):
		return "kubectl sidecarset why " + s.Name
	}
	return ""
}

// writerOfPause names the field manager that wrote spec.updateStrategy.paused, and the time of the last write
// of this manager.
func writerOfPause(set *v1alpha1.SidecarSet, now time.Time) string {
	if !set.Spec.UpdateStrategy.Paused {
		return ""
	}
	for _, entry := range set.ManagedFields {
		var fields struct {
			Spec struct {
				Strategy map[string]any `json:"f:updateStrategy"`
			} `json:"f:spec"`
		}
		if entry.Time == nil || entry.FieldsV1 == nil || entry.Subresource != "" || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, wrote := fields.Spec.Strategy["f:paused"]; wrote {
			return ", written by " + entry.Manager + ", whose last write was " + age(now, entry.Time.Time) + " ago"
		}
	}
	return ""
}

// BehindPods contains pods that lack the sidecars of a SidecarSet, or do not have the newest revision.
type BehindPods []BehindPod

// BehindPod is a pod that lacks the sidecars of a SidecarSet, or does not have the newest revision.
type BehindPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Set       string `json:"sidecarSet"`
	// Revision is the revision of the pod, or empty if the pod lacks the sidecars.
	Revision string    `json:"holds,omitempty"`
	Phase    PodPhase  `json:"phase"`
	Reason   string    `json:"why,omitempty"`
	Created  time.Time `json:"created"`
	pod      *corev1.Pod
}

// Pod returns the pod from the API server.
func (p *BehindPod) Pod() *corev1.Pod { return p.pod }

// Cause returns the reason without the command that recreates the pod.
func (p *BehindPod) Cause() string { return strings.TrimSuffix(p.Reason, recreate(p.pod, p.Set)) }

func (in *Input) behind(pod *corev1.Pod, phase PodPhase, reason string) BehindPod {
	row := BehindPod{Namespace: pod.Namespace, Name: pod.Name, Set: in.Set.Name, Phase: phase, Reason: reason, Created: pod.CreationTimestamp.Time, pod: pod}
	if phase != PodMissing {
		row.Revision = cmp.Or(entryOf(pod, in.Set.Name).ControllerRevision, unknownRevision)
	}
	return row
}

// Outdated returns the pods with an older version of a SidecarSet, including pods that are not matched.
func Outdated(in *Input) (BehindPods, error) {
	matched, version, err := in.matched()
	if err != nil {
		return nil, err
	}
	found, err := in.leftOut(version)
	for i := range matched {
		if pod := &matched[i]; !pod.Updated {
			shown := newPod(pod, version, "")
			found = append(found, in.behind(pod.Pod, shown.Phase, shown.Reason))
		}
	}
	return found.sorted(), err
}

// Missing returns the pods that match a SidecarSet, for which the webhook is called, and that were not
// injected. While injection is paused, Missing returns no pods.
func Missing(in *Input) (BehindPods, error) {
	scope, err := match.NewScope(&in.Set.Spec)
	if err != nil || in.Set.DeletionTimestamp != nil {
		return nil, err
	}
	pods, err := rollout.Uninjected(in.Set, in.Pods, match.NewWebhook(in.Webhook.Installed, in.SystemNamespace), in.NamespaceLabels)
	// A NotFound error is ignored, because Uninjected also returns the pods of the existing namespaces.
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	var found BehindPods
	for _, pod := range pods {
		labels, err := in.NamespaceLabels(pod.Namespace)
		if err != nil {
			return nil, err
		}
		i := &injection{PodWhyInput: PodWhyInput{Pod: pod, NamespaceLabels: labels, SystemNamespace: in.SystemNamespace, Webhook: in.Webhook}, set: in.Set, scope: scope}
		found = append(found, in.behind(pod, PodMissing, i.reason()))
	}
	return found.sorted(), nil
}

// controlled reports whether at least one pod has a controller, which recreates the pod.
func (all BehindPods) controlled() bool {
	return slices.ContainsFunc(all, func(p BehindPod) bool { return podstate.Controlled(p.pod) })
}

func (all BehindPods) sorted() BehindPods {
	slices.SortFunc(all, func(a, b BehindPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Text returns a line for each pod.
func (all BehindPods) Text(s Style) string {
	if len(all) == 0 {
		return "No pods are behind.\n"
	}
	rows := [][]string{{"NAMESPACE", "POD", "SIDECARSET", "STATE", "REVISION", "AGE", "REASON"}}
	for i := range all {
		one := &all[i]
		rows = append(rows, []string{one.Namespace, one.Name, one.Set, string(one.Phase), one.Revision, age(s.Now, one.Created), one.Reason})
	}
	return table(rows)
}
