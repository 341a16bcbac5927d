package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
)

// Summaries are the sets of a cluster.
type Summaries []Summary

// Summary is what status says of a set.
type Summary struct {
	Name     string          `json:"name"`
	Revision string          `json:"revision,omitempty"`
	Matched  int32           `json:"matched"`
	Updated  int32           `json:"updated"`
	Ready    int32           `json:"ready"`
	Reason   string          `json:"reason,omitempty"`
	Message  string          `json:"message,omitempty"`
	Degraded string          `json:"degraded,omitempty"`
	Missing  bool            `json:"missing,omitempty"`
	Hold     *protocol.Pause `json:"hold,omitempty"`
	Images   []Image         `json:"images,omitempty"`
	Created  time.Time       `json:"created"`
}

// NewSummaries keeps the order of the sets.
func NewSummaries(sets []v1alpha1.SidecarSet) Summaries {
	all := Summaries{}
	for i := range sets {
		set := &sets[i]
		one := Summary{
			Name: set.Name, Revision: set.Status.LatestRevision, Images: images(&set.Spec), Created: set.CreationTimestamp.Time,
			Matched: set.Status.MatchedPods, Updated: set.Status.UpdatedPods, Ready: set.Status.ReadyPods,
			Hold: holdOf(RolloutInput{Set: set}),
		}
		if c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing); c != nil {
			one.Reason, one.Message = c.Reason, c.Message
		}
		if c := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionDegraded); c != nil && c.Status == "True" {
			one.Degraded = c.Reason
		}
		one.Missing = meta.IsStatusConditionFalse(set.Status.Conditions, v1alpha1.ConditionInjected)
		all = append(all, one)
	}
	return all
}

// Write writes a line for each set; wide adds revision, images and message.
func (s Summaries) Write(out io.Writer, t Text) error {
	if len(s) == 0 {
		_, err := fmt.Fprintln(out, "No SidecarSets found.")
		return err
	}
	head := []string{"NAME", "MATCHED", "UPDATED", "READY", "STATE", "NEEDS ATTENTION", "AGE"}
	if t.Wide {
		head = append(head, "REVISION", "IMAGES", "MESSAGE")
	}
	rows := [][]string{head}
	for i := range s {
		one := &s[i]
		row := []string{one.Name, fmt.Sprint(one.Matched), fmt.Sprint(one.Updated), fmt.Sprint(one.Ready),
			orDash(one.Reason), orDash(one.attention()), age(t.Now, &one.Created)}
		if t.Wide {
			row = append(row, orDash(one.Revision), joinImages(one.Images), orDash(one.Message))
		}
		rows = append(rows, row)
	}
	return table(out, rows)
}

func (s *Summary) attention() string {
	var words []string
	if s.Degraded != "" {
		words = append(words, s.Degraded)
	}
	if s.Missing {
		words = append(words, v1alpha1.ReasonPodsWithoutSidecar)
	}
	return strings.Join(words, ",")
}

// BehindPods are pods that lack a set, or its newest version.
type BehindPods []BehindPod

// BehindPod is one of them.
type BehindPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Set       string `json:"sidecarSet"`
	// Holds is the revision that the pod holds; empty if it lacks the set.
	Holds   string    `json:"holds,omitempty"`
	Phase   PodPhase  `json:"phase"`
	Why     string    `json:"why,omitempty"`
	Created time.Time `json:"created"`
}

// PodMissing pods match and were not injected.
const PodMissing PodPhase = "Missing"

// Outdated lists the pods that hold an older version of a set, also those that rollouts
// leave out.
func Outdated(set *v1alpha1.SidecarSet, pods []*corev1.Pod, labels func(string) (map[string]string, error)) (BehindPods, error) {
	population, err := rollout.Population(set, pods, labels)
	if err != nil {
		return nil, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	var found BehindPods
	for i := range population {
		pod := &population[i]
		if pod.Updated {
			continue
		}
		entries, err := record.Hashes(pod.Annotations)
		if err != nil {
			return nil, err
		}
		s := standing{Pod: pod, set: set.Name, version: version}
		shown := s.pod()
		found = append(found, BehindPod{
			Namespace: pod.Namespace, Name: pod.Name, Set: set.Name, Phase: shown.Phase, Why: shown.Why, Created: pod.CreationTimestamp.Time,
			Holds: cmp.Or(entries[set.Name].ControllerRevision, unknownRevision),
		})
	}
	left, err := findLeftAlone(set, pods, labels)
	for _, pod := range left {
		found = append(found, BehindPod{
			Namespace: pod.Namespace, Name: pod.Name, Set: set.Name, Phase: pod.phase, Why: pod.why, Created: pod.CreationTimestamp.Time,
			Holds: cmp.Or(pod.entries[set.Name].ControllerRevision, unknownRevision),
		})
	}
	return found.sorted(), err
}

// Missing lists the pods that match a set, that the webhook is asked about, and that were
// not injected. A set whose injection is paused misses none.
func Missing(set *v1alpha1.SidecarSet, pods []*corev1.Pod, labels func(string) (map[string]string, error), systemNamespace string, webhook Webhook) (BehindPods, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil || set.Spec.InjectionStrategy.Paused || set.DeletionTimestamp != nil {
		return nil, err
	}
	asked := match.NewWebhook(webhook.Installed, systemNamespace)
	var found BehindPods
	for _, pod := range pods {
		if !match.Active(pod) || !asked.Pod(pod) || record.Injected(pod.Annotations, set.Name) || !scope.Labels(pod.Labels) {
			continue
		}
		of, err := labels(pod.Namespace)
		if err != nil {
			return nil, err
		}
		if !asked.Namespace(pod.Namespace, of) || !scope.Namespace(pod.Namespace, of) {
			continue
		}
		i := &injection{PodWhyInput: PodWhyInput{Pod: pod, NamespaceLabels: of, SystemNamespace: systemNamespace, Webhook: webhook}, set: set, scope: scope}
		found = append(found, BehindPod{
			Namespace: pod.Namespace, Name: pod.Name, Set: set.Name, Phase: PodMissing, Why: i.reason(), Created: pod.CreationTimestamp.Time,
		})
	}
	return found.sorted(), nil
}

func (p BehindPods) sorted() BehindPods {
	slices.SortFunc(p, func(a, b BehindPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return p
}

// Write writes a line for each pod.
func (p BehindPods) Write(out io.Writer, t Text) error {
	if len(p) == 0 {
		_, err := fmt.Fprintln(out, "No pods are behind.")
		return err
	}
	rows := [][]string{{"NAMESPACE", "POD", "SIDECARSET", "STATE", "HOLDS", "AGE", "WHY"}}
	for i := range p {
		one := &p[i]
		rows = append(rows, []string{one.Namespace, one.Name, one.Set, string(one.Phase), orDash(one.Holds), age(t.Now, &one.Created), orDash(one.Why)})
	}
	return table(out, rows)
}
