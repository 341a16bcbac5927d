package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
)

// RolloutInput is what a Rollout is made from.
type RolloutInput struct {
	Set *v1alpha1.SidecarSet
	// Pods may hold others than the set's.
	Pods []*corev1.Pod
	// NamespaceLabels are asked for where the set selects namespaces by label.
	NamespaceLabels func(string) (map[string]string, error)
	// Revisions are the set's, sorted; empty where they cannot be read.
	Revisions []*appsv1.ControllerRevision
	Run       RunInput
	// SystemNamespace is where Outrigger runs.
	SystemNamespace string
}

// RunInput is what the open run of a set says.
type RunInput struct {
	// Status is nil if no run is open.
	Status *protocol.RolloutStatus
	// Refused are the pods whose writes the run reported as refused.
	Refused []protocol.RejectedPod
	// Unknown says why the run could not be asked.
	Unknown string
	// Where is the Temporal that was asked.
	Where string
}

// Rollout is how far a set's newest version is.
type Rollout struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Observed says that status is about this generation.
	Observed bool `json:"observed"`
	// Phase is the plan's, or Paused while somebody holds the run.
	Phase   protocol.Phase  `json:"phase"`
	Message string          `json:"message"`
	Counts  protocol.Counts `json:"counts"`
	Window  Window          `json:"window"`
	Images  []Image         `json:"images"`
	Hold    *protocol.Pause `json:"hold,omitempty"`
	// Conditions are those that the operator wrote, Progressing first.
	Conditions []Condition `json:"conditions,omitempty"`
	Run        *Run        `json:"run,omitempty"`
	// RunUnknown says why nothing is known about the run.
	RunUnknown string `json:"runUnknown,omitempty"`
	// RunWhere is the Temporal that was asked for the run.
	RunWhere  string     `json:"runWhere,omitempty"`
	Revisions []Revision `json:"revisions,omitempty"`
}

// Window is the bound of a rollout.
type Window struct {
	MaxUnavailable string `json:"maxUnavailable"`
	// Slots is that as a number of pods, and Free how many of them are left.
	Slots int `json:"slots"`
	Free  int `json:"free"`
	// Partition is empty if no pod is kept old.
	Partition string `json:"partition,omitempty"`
}

// Image is what a sidecar runs.
type Image struct {
	Container string `json:"container"`
	Image     string `json:"image"`
}

// Condition is one of the set's.
type Condition struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
	Since   time.Time              `json:"since"`
}

// Run is the workflow run that carries the generation.
type Run struct {
	WorkflowID string         `json:"workflowID"`
	URL        string         `json:"url,omitempty"`
	Generation int64          `json:"generation"`
	Phase      protocol.Phase `json:"phase"`
	Message    string         `json:"message,omitempty"`
	Batches    int            `json:"batches"`
	Upgraded   int            `json:"upgraded"`
	Failed     int            `json:"failed,omitempty"`
	Since      time.Time      `json:"since"`
}

// Revision is a version with the pods that hold it.
type Revision struct {
	Name    string  `json:"name"`
	Number  int64   `json:"number,omitempty"`
	Current bool    `json:"current,omitempty"`
	Images  []Image `json:"images,omitempty"`
	Owners  []Owner `json:"owners"`
}

// Owner is a workload with its pods; kind and name are empty for bare pods.
type Owner struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name,omitempty"`
	Pods      []Pod  `json:"pods"`
}

// NewRollout plans as the worker does, and says where each pod stands. It fails where the
// pods of the set cannot be determined.
func NewRollout(in RolloutInput) (*Rollout, error) {
	set := in.Set
	population, err := rollout.Population(set, in.Pods, in.NamespaceLabels)
	if err != nil {
		return nil, err
	}
	plan, err := rollout.Next(set, population, nil)
	if err != nil {
		return nil, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	r := &Rollout{
		Name: set.Name, Generation: set.Generation, Observed: set.Status.ObservedGeneration == set.Generation,
		Phase: plan.Phase, Message: plan.Message, Counts: plan.Counts, Window: windowOf(set, &plan),
		Images: images(&set.Spec), Hold: holdOf(in), Conditions: conditions(set), Run: runOf(in), RunUnknown: in.Run.Unknown, RunWhere: in.Run.Where,
	}
	if r.Hold != nil && r.Counts.Remaining > 0 {
		r.Phase = protocol.PhasePaused
	}
	r.Revisions, err = revisions(in, population, version)
	return r, err
}

func windowOf(set *v1alpha1.SidecarSet, plan *rollout.Plan) Window {
	w := Window{MaxUnavailable: "1", Slots: plan.MaxUnavailable, Free: plan.OpenSlots}
	if bound := set.Spec.UpdateStrategy.MaxUnavailable; bound != nil {
		w.MaxUnavailable = bound.String()
	}
	kept := set.Spec.UpdateStrategy.Partition
	if kept != nil && *kept != intstr.FromInt32(0) && *kept != intstr.FromString("0%") && set.Spec.UpdateStrategy.Selector == nil {
		w.Partition = kept.String()
	}
	return w
}

func images(spec *v1alpha1.SidecarSetSpec) []Image {
	var all []Image
	for _, list := range [][]v1alpha1.SidecarContainer{spec.InitContainers, spec.Containers} {
		for i := range list {
			all = append(all, Image{Container: list[i].Name, Image: list[i].Image})
		}
	}
	return all
}

// holdOf prefers what the run says to status, which follows it.
func holdOf(in RolloutInput) *protocol.Pause {
	if in.Run.Status != nil {
		return in.Run.Status.Pause
	}
	if status := in.Set.Status.Rollout; status != nil && status.Pause != nil {
		return &protocol.Pause{By: status.Pause.By, Reason: status.Pause.Reason}
	}
	return nil
}

func conditions(set *v1alpha1.SidecarSet) []Condition {
	var found []Condition
	for _, kind := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded, v1alpha1.ConditionInjected} {
		if c := meta.FindStatusCondition(set.Status.Conditions, kind); c != nil {
			found = append(found, Condition{c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime.Time})
		}
	}
	return found
}

func runOf(in RolloutInput) *Run {
	if in.Run.Status == nil {
		return nil
	}
	run := &Run{
		WorkflowID: protocol.WorkflowID(in.Set.Name, in.Set.UID), Generation: in.Run.Status.Generation, Phase: in.Run.Status.Phase, Message: in.Run.Status.Message,
		Batches: in.Run.Status.Batches, Upgraded: in.Run.Status.Upgraded, Failed: in.Run.Status.RejectedWrites, Since: in.Run.Status.Since,
	}
	if in.Set.Status.Rollout != nil {
		run.URL = in.Set.Status.Rollout.URL
	}
	return run
}

// revisions groups the pods: by what they hold, the newest first, then by owner.
func revisions(in RolloutInput, population []rollout.Pod, version *podstate.Version) ([]Revision, error) {
	refused := map[protocol.PodReference]string{}
	for _, pod := range in.Run.Refused {
		refused[pod.PodReference] = pod.Reason
	}
	known := newHistory(in.Set, in.Revisions)
	byName := map[string]*Revision{}
	for i := range population {
		entries, err := record.Hashes(population[i].Annotations)
		if err != nil {
			return nil, err
		}
		held := known.held(entries[in.Set.Name])
		if population[i].Updated {
			held = known.current
		}
		if byName[held] == nil {
			byName[held] = known.describe(held)
		}
		s := standing{Pod: &population[i], set: in.Set.Name, version: version, refused: refused}
		byName[held].add(population[i].Pod, s.pod())
	}
	all := make([]Revision, 0, len(byName))
	for _, one := range byName {
		one.sort()
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

func (r *Revision) add(object *corev1.Pod, pod Pod) {
	kind, name := owner(object)
	at := slices.IndexFunc(r.Owners, func(o Owner) bool { return o.Namespace == pod.Namespace && o.Kind == kind && o.Name == name })
	if at < 0 {
		at = len(r.Owners)
		r.Owners = append(r.Owners, Owner{Namespace: pod.Namespace, Kind: kind, Name: name})
	}
	r.Owners[at].Pods = append(r.Owners[at].Pods, pod)
}

func (r *Revision) sort() {
	slices.SortFunc(r.Owners, func(a, b Owner) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	for i := range r.Owners {
		slices.SortFunc(r.Owners[i].Pods, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	}
}

// Done reports whether there is nothing to wait for, with an error where that is no
// success.
func (r *Rollout) Done() (bool, error) {
	switch {
	case !r.Observed:
		return false, nil
	case r.Phase == protocol.PhaseNotUpdate:
		return true, errors.New("upgrades are off (spec.updateStrategy.type NotUpdate): there is no rollout to wait for")
	case !r.Phase.Ended():
		return false, nil
	case r.Counts.NotUpgradable > 0:
		return true, fmt.Errorf("the rollout ended, but %s cannot be upgraded in place: they take the new version when they are created anew", plural(r.Counts.NotUpgradable, "pod"))
	}
	return true, nil
}
