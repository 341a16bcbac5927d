package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// Rollout is the progress of the newest version of a SidecarSet.
type Rollout struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Observed reports whether the operator has observed this generation.
	Observed bool `json:"observed"`
	// Headline is a short phrase for the state of the rollout.
	Headline string `json:"headline"`
	// Phase is the phase of the plan. Between two steps, Phase is Baking, GateRunning or AwaitingApproval.
	// While the run is paused, Phase is Paused.
	Phase   protocol.Phase  `json:"phase"`
	Message string          `json:"message"`
	Counts  protocol.Counts `json:"counts"`
	Limits  Limits          `json:"window"`
	Images  []Image         `json:"images"`
	Pause   *protocol.Pause `json:"hold,omitempty"`
	// PausedBySpec is spec.updateStrategy.paused.
	PausedBySpec bool `json:"pausedBySpec,omitempty"`
	// InjectionPaused is spec.injectionStrategy.paused.
	InjectionPaused bool `json:"injectionPaused,omitempty"`
	// Conditions contains the conditions in the status, Progressing first.
	Conditions []Condition `json:"conditions,omitempty"`
	Run        *Run        `json:"run,omitempty"`
	// RunUnknown is the reason why the state of the run is unknown.
	RunUnknown string `json:"runUnknown,omitempty"`
	// Temporal is the address of Temporal and the namespace of the runs.
	Temporal string `json:"runWhere,omitempty"`
	// Policy is the RolloutPolicy of a rollout that has pods left to upgrade.
	Policy    string     `json:"policy,omitempty"`
	Steps     []Step     `json:"steps,omitempty"`
	Revisions []Revision `json:"revisions,omitempty"`
	// Fault is the part of the installation that does not respond.
	Fault Fault `json:"fault,omitzero"`
	// LostPods contains the pods that are ready in the API server although their nodes do not exist.
	LostPods []LostPod `json:"lostPods,omitempty"`
	stage    *protocol.Stage
	// undo is the command that restores the last good revision.
	undo string
	// terminating is set if the SidecarSet is being deleted.
	terminating bool
	// retried is set if the run is not rolled back, even if the status shows a rollback.
	retried bool
	// rollback is the reason of Progressing for a rollback in progress or a completed rollback, or empty.
	rollback string
	// waits is the reason why a reached step has not ended.
	waits string
	// notResponding is set if the run does not respond although Temporal responds.
	notResponding bool
	// unreachable is set if Temporal did not respond to the command.
	unreachable bool
	// late is the pod for which the rollout waits, if the upgrade of this pod has been in progress for too
	// long.
	late *Pod
	// bareMissing is set if no controller recreates the pods without sidecars.
	bareMissing bool
	// noPods explains why no pod is matched. noPods is set only while no pod is matched.
	noPods noPods
}

// Limits contains the limits of a rollout.
type Limits struct {
	MaxUnavailable string `json:"maxUnavailable"`
	// Slots is MaxUnavailable as a number of pods. Open is the number of unused slots.
	Slots int `json:"slots"`
	Open  int `json:"free"`
	// NotReady is the number of pods that are not ready for a reason other than an upgrade. These pods use no
	// slots.
	NotReady int `json:"notReady,omitempty"`
	// Partition is empty if the partition keeps no pod old.
	Partition string `json:"partition,omitempty"`
}

// Image is the image of a sidecar.
type Image struct {
	Container string `json:"container"`
	Image     string `json:"image"`
}

// Condition is a condition of a SidecarSet.
type Condition struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
	Since   time.Time              `json:"since"`
}

// Run is the workflow run of a generation.
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

// Revision is a version with its pods.
type Revision struct {
	Name    string  `json:"name"`
	Number  int64   `json:"number,omitempty"`
	Current bool    `json:"current,omitempty"`
	Images  []Image `json:"images,omitempty"`
	Owners  []Owner `json:"owners"`
}

// Owner is a workload with its pods. Kind and name are empty for pods without a controller.
type Owner struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name,omitempty"`
	Pods      []Pod  `json:"pods"`
}

// NewRollout returns the progress of a rollout, which the planner of the worker computes. If the pods of the
// SidecarSet cannot be determined, NewRollout returns an error.
func NewRollout(in *Input) (*Rollout, error) {
	matched, version, err := in.matched()
	if err != nil {
		return nil, err
	}
	set := in.Set
	current := StageOf(set, in.Run.Status)
	plan, err := rollout.NextInStage(set, matched, nil, current)
	if err != nil {
		return nil, err
	}
	r := &Rollout{
		Name: set.Name, Generation: set.Generation, Observed: set.Status.ObservedGeneration == set.Generation,
		Phase: plan.Phase, Message: plan.Message, Counts: plan.Counts, Limits: limitsOf(set, &plan),
		Images: images(&set.Spec), Pause: pauseOf(set, in.Run.Status), PausedBySpec: set.Spec.UpdateStrategy.Paused,
		InjectionPaused: set.Spec.InjectionStrategy.Paused, Conditions: conditions(set), Run: runOf(in),
		RunUnknown: in.Run.Unknown, Temporal: in.Run.Temporal, Revisions: in.byRevision(matched, version),
		notResponding: in.Run.NotResponding, unreachable: in.Run.Unreachable, stage: current,
		Fault: in.Fault, terminating: set.DeletionTimestamp != nil, undo: UndoCommand(set, in.Revisions),
	}
	if r.Counts.Matched == 0 {
		r.noPods = newNoPods(in)
	}
	run := in.Run.Status
	r.retried = run != nil && run.Stage != nil && run.Generation == set.Generation && run.Stage.Quarantine == nil
	r.waitForLimits(run)
	r.explainNodes(in.Nodes)
	r.addLostPods(in.Nodes)
	r.reached(in.Now)
	r.frozen()
	if err := r.rolledBack(in); err != nil {
		return nil, err
	}
	if r.Pause != nil && (r.Counts.Remaining > 0 || r.Phase == protocol.PhaseFrozen) {
		r.Phase = protocol.PhasePaused
	}
	if r.notResponding { // The rollout waits for the run, and not for pods.
		r.Message = strings.TrimSuffix(r.Message, "; "+rollout.WaitingFor+plan.Example)
	}
	if r.facts().uninjected > 0 {
		missing, err := Missing(in)
		r.bareMissing = err == nil && len(missing) > 0 && !missing.controlled()
	}
	r.late = r.latePod(in.Now)
	r.Headline = headline(r.facts())
	r.addSteps(in.Policy, in.Now)
	return r, nil
}

func limitsOf(set *v1alpha1.SidecarSet, plan *rollout.Plan) Limits {
	limits := Limits{MaxUnavailable: "1", Slots: plan.MaxUnavailable, Open: plan.OpenSlots, NotReady: plan.NotReady}
	if limit := set.Spec.UpdateStrategy.MaxUnavailable; limit != nil {
		limits.MaxUnavailable = limit.String()
	}
	if rollout.KeepsPods(&set.Spec.UpdateStrategy) {
		limits.Partition = set.Spec.UpdateStrategy.Partition.String()
	}
	return limits
}

func images(spec *v1alpha1.SidecarSetSpec) []Image {
	var all []Image
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		all = append(all, Image{Container: c.Name, Image: c.Image})
	}
	return all
}

// pauseOf returns the pause of a rollout, or nil. If run is set, pauseOf ignores the status, because the
// status may be older.
func pauseOf(set *v1alpha1.SidecarSet, run *protocol.RolloutStatus) *protocol.Pause {
	if run != nil {
		return run.Pause
	}
	if status := set.Status.Rollout; status != nil && status.Pause != nil {
		return &protocol.Pause{By: status.Pause.By, Reason: status.Pause.Reason}
	}
	return nil
}

func conditions(set *v1alpha1.SidecarSet) []Condition {
	var found []Condition
	for _, kind := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded, v1alpha1.ConditionInjected, v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		if c := meta.FindStatusCondition(set.Status.Conditions, kind); c != nil {
			found = append(found, Condition{c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime.Time})
		}
	}
	return found
}

func runOf(in *Input) *Run {
	status := in.Run.Status
	if status == nil {
		return nil
	}
	run := &Run{
		WorkflowID: protocol.WorkflowID(in.Set.Name, in.Set.UID), Generation: status.Generation, Phase: status.Phase, Message: status.Message,
		Batches: status.Batches, Upgraded: status.Upgraded, Failed: status.RejectedWrites, Since: status.Since,
	}
	if in.Set.Status.Rollout != nil {
		run.URL = in.Set.Status.Rollout.URL
	}
	return run
}

// byRevision groups the matched pods by revision, the newest first, and by owner.
func (in *Input) byRevision(matched []rollout.Pod, version *podstate.Version) []Revision {
	rejections := map[protocol.PodReference]string{}
	for _, pod := range in.Run.Rejected {
		rejections[pod.PodReference] = pod.Reason
	}
	known, byName := in.revisions(), map[string]*Revision{}
	for i := range matched {
		pod := &matched[i]
		name := known.of(pod.Pod)
		if pod.Updated {
			name = known.current
		}
		if byName[name] == nil {
			byName[name] = known.describe(name)
		}
		shown := newPod(pod, version, rejections[pod.Reference()])
		if shown.Reason == differs {
			shown.Reason = differs + strings.TrimPrefix(known.whyNotInPlace(pod.Pod, &in.Set.Spec), notInPlace)
		}
		byName[name].add(pod.Pod, shown)
	}
	all := make([]Revision, 0, len(byName))
	for _, one := range byName {
		one.sort()
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), strings.Compare(a.Name, b.Name))
	})
	return all
}

func (r *Revision) add(object *corev1.Pod, pod Pod) {
	kind, name := podstate.Owner(object)
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

// Done reports whether a watch of the rollout can end. If the rollout has ended without an upgrade of all
// pods, Done returns an error.
func (r *Rollout) Done() (bool, error) {
	switch {
	case r.terminating:
		return true, fmt.Errorf("SidecarSet %s is being deleted, so that its rollout does not continue; %s", r.Name, seeFinalizers(r.Name))
	case !r.Observed:
		return false, nil
	case r.Phase == protocol.PhaseNotUpdate:
		return true, errors.New("upgrades are disabled (spec.updateStrategy.type NotUpdate): there is no rollout to wait for")
	case r.quarantined():
		return true, fmt.Errorf("the rollout ended, and its pods were rolled back; try the content again: %s", retryCommand(r.Name))
	case !r.Phase.Ended():
		return false, nil
	case r.Counts.NotUpgradable > 0 && r.Phase == protocol.PhaseComplete:
		return true, fmt.Errorf("the rollout ended, but %s cannot be upgraded in place, and get the new version when they are recreated: %s", rollout.Count(r.Counts.NotUpgradable, "pod"), restartCommand(r.Name))
	}
	return true, nil
}

// RunEnds reports whether the run is open and ends without a user action after the pods have converged.
func (r *Rollout) RunEnds() bool {
	return r.Run != nil && r.Pause == nil && !r.quarantined() && !r.terminating
}

// quarantined reports whether all pods of a rollout are rolled back. The run of the rollout stays open for a
// retry.
func (r *Rollout) quarantined() bool { return r.Headline == v1alpha1.ReasonQuarantined && !r.retried }

// Degraded returns the condition Degraded if the condition is True for the newest generation, or nil.
func (r *Rollout) Degraded() *Condition {
	for i := range r.Conditions {
		if c := &r.Conditions[i]; r.Observed && c.Type == v1alpha1.ConditionDegraded && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}
