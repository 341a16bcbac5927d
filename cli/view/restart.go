package view

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// Restart contains the pods that get the newest version of a SidecarSet only when the pods are recreated.
type Restart struct {
	Name string
	// Evict contains the pods that a controller recreates after an eviction.
	Evict BehindPods
	// Keep contains the pods that are not evicted. The reason of each pod names the remedy.
	Keep BehindPods
	// slots is maxUnavailable as a number of pods.
	slots  int
	owners map[Workload]available
}

// Workload is the owner of pods.
type Workload struct{ Namespace, APIVersion, Kind, Name string }

func workloadOf(pod *corev1.Pod) Workload {
	kind, name := podstate.Owner(pod)
	owner := Workload{Namespace: pod.Namespace, Kind: kind, Name: name}
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		owner.APIVersion = controller.APIVersion
	}
	return owner
}

func (w Workload) String() string {
	return strings.ToLower(w.Kind) + "/" + w.Name + " in " + w.Namespace
}

// available counts the active pods of a workload.
type available struct{ pods, ready int }

// lacks returns the number of pods that are missing or not ready, compared with the earlier count before.
func (a available) lacks(before available) int {
	return max(before.pods-a.pods, before.ready-a.ready, 0)
}

// NewRestart returns the pods to evict. If recreated pods would not get the newest version, NewRestart
// returns an error.
func NewRestart(in *Input) (*Restart, error) {
	if err := in.recreatable(); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", in.Set.Name, err)
	}
	matched, version, err := in.matched()
	if err != nil {
		return nil, err
	}
	if err := in.rolloutEnded(matched); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", in.Set.Name, err)
	}
	behind, err := in.leftOut(version)
	if err != nil {
		return nil, err
	}
	missing, err := Missing(in)
	if err != nil {
		return nil, err
	}
	behind = append(behind, missing...)
	population := len(matched) + len(behind)
	for i := range matched {
		if pod := &matched[i]; !pod.Updated && !pod.Upgradable {
			behind = append(behind, in.behind(pod.Pod, PodNotUpgradable, differs))
		}
	}
	slots, err := rollout.MaxUnavailable(&in.Set.Spec.UpdateStrategy, population)
	if err != nil {
		return nil, err
	}
	r := &Restart{Name: in.Set.Name, slots: slots, owners: countByOwner(in.Pods)}
	if err := r.divide(in, behind.sorted()); err != nil {
		return nil, err
	}
	if slots == 0 && len(r.Evict) > 0 {
		return nil, fmt.Errorf("maxUnavailable of SidecarSet %s is 0: no pod may be evicted (%s)", r.Name, PatchStrategy(r.Name, "maxUnavailable", "1"))
	}
	return r, nil
}

func countByOwner(pods []*corev1.Pod) map[Workload]available {
	owners := map[Workload]available{}
	for _, pod := range pods {
		if !match.Active(pod) {
			continue
		}
		count := owners[workloadOf(pod)]
		count.pods++
		if podstate.True(pod, corev1.PodReady) {
			count.ready++
		}
		owners[workloadOf(pod)] = count
	}
	return owners
}

// recreatable returns an error if recreated pods would not get the newest version.
func (in *Input) recreatable() error {
	condition := meta.FindStatusCondition(in.Set.Status.Conditions, v1alpha1.ConditionInjected)
	switch reason := rollout.OldWhenRecreated(in.Set, in.Webhook.Installed); {
	case reason != "":
		return errors.New(reason)
	case stage.QuarantineOf(in.Set) != nil:
		return errors.New("the content is quarantined: recreated pods would get the revision of the rollback (kubectl sidecarset retry " + in.Set.Name + ")")
	case in.awaitsPermit():
		return errors.New("the rollout waits for a permit of the fleet: recreated pods would get the former content (kubectl sidecarset permit " + in.Set.Name + " --reason TEXT)")
	case in.Webhook.Absent, in.Webhook.Installed != nil && len(in.Webhook.Installed.Rules) == 0, condition != nil && condition.Reason == v1alpha1.ReasonWebhookUnavailable:
		return errors.New("the webhook of pods is not installed, is not activated, or does not respond: recreated pods would have no sidecars (kubectl sidecarset check)")
	}
	return nil
}

// awaitsPermit reports whether new pods get the last good revision until the fleet permits the newest content.
func (in *Input) awaitsPermit() bool {
	return in.Set.ProgressingReason() == v1alpha1.ReasonAwaitingPermit && stage.Former(in.Set) != nil
}

// rolloutEnded returns an error if the rollout is in progress or paused. A restart during a rollout could make
// more pods unavailable than maxUnavailable, because the worker does not count evicted pods.
func (in *Input) rolloutEnded(matched []rollout.Pod) error {
	if in.Set.Spec.UpdateStrategy.Paused {
		return errors.New(PausedBySpec(in.Set.Name))
	}
	if pause := pauseOf(in.Set, nil); pause != nil {
		return errors.New("the run is paused " + PausedBySignal(in.Set.Name, pause))
	}
	plan, err := rollout.NextInStage(in.Set, matched, nil, stage.OfStatus(in.Set))
	if err != nil {
		return err
	}
	switch plan.Phase {
	case protocol.PhaseProgressing, protocol.PhaseWaiting, protocol.PhaseStepReached:
		return errors.New("the rollout is in progress, and may also make maxUnavailable pods unready: repeat the restart after kubectl sidecarset status " + in.Set.Name + " -w")
	}
	return nil
}

// divide divides the pods into Evict and Keep. Keep contains the pods without a controller, the pods whose
// restartPolicy is not Always, and the pods that would be recreated without sidecars.
func (r *Restart) divide(in *Input, behind BehindPods) error {
	webhook := match.NewWebhook(in.Webhook.Installed, in.SystemNamespace)
	for _, pod := range behind {
		labels, err := in.NamespaceLabels(pod.Namespace)
		if err != nil {
			return err
		}
		kind, name := podstate.Owner(pod.pod)
		switch policy := pod.pod.Spec.RestartPolicy; {
		case kind == "":
			pod.Reason = fmt.Sprintf("no controller recreates it; create it again after: kubectl delete pod %s -n %s", pod.Name, pod.Namespace)
		case policy != corev1.RestartPolicyAlways:
			pod.Reason = fmt.Sprintf("its restartPolicy is %s, so an eviction may count as a failure of %s/%s; the pods of its next run get the sidecars", policy, strings.ToLower(kind), name)
		case !webhook.Pod(pod.pod) || !webhook.Namespace(pod.Namespace, labels):
			pod.Reason = fmt.Sprintf("the webhook of pods is not called for this pod, so the recreated pod would have no sidecars (kubectl get mutatingwebhookconfiguration outrigger -o yaml; kubectl get namespace %s --show-labels)", pod.Namespace)
		default:
			pod.Reason = pod.Cause()
			r.Evict = append(r.Evict, pod)
			continue
		}
		r.Keep = append(r.Keep, pod)
	}
	return nil
}

// Text returns the list of the pods of a dry run.
func (r *Restart) Text(s Style) string {
	if len(r.Evict) == 0 {
		return "sidecarset/" + r.Name + ": no pod has to be evicted\n" + r.KeptText()
	}
	return r.Evict.Text(s) + r.KeptText()
}

// KeptText returns a line for each pod that is not evicted.
func (r *Restart) KeptText() string {
	var out strings.Builder
	for i := range r.Keep {
		fmt.Fprintf(&out, "not evicted: %s/%s: %s\n", r.Keep[i].Namespace, r.Keep[i].Name, r.Keep[i].Reason)
	}
	return out.String()
}

// Evictions is the state of the evictions of a restart.
type Evictions struct {
	// left contains the pods at the start of the restart that are not evicted yet. Replacements of evicted
	// pods are not added.
	left map[types.UID]bool
	// owners contains the owners of evicted pods, until an owner has as many ready pods as before.
	owners map[Workload]*replacement
	Done   int
}

// replacement is the state of an owner that replaces evicted pods.
type replacement struct {
	// before contains the counts of the pods of the owner before the first eviction.
	before  available
	evicted int
}

// lacks returns the number of evicted pods without a ready replacement. The result is at most the number of
// evicted pods, because other pods may be unready for other reasons.
func (r *replacement) lacks(now available) int { return min(now.lacks(r.before), r.evicted) }

// NewEvictions returns the state at the start of a restart.
func NewEvictions(start *Restart) *Evictions {
	e := &Evictions{left: map[types.UID]bool{}, owners: map[Workload]*replacement{}}
	for i := range start.Evict {
		e.left[start.Evict[i].pod.UID] = true
	}
	return e
}

// Owners returns the owners whose evicted pods may not have ready replacements yet.
func (e *Evictions) Owners() []Workload { return slices.Collect(maps.Keys(e.owners)) }

// Pods returns the number of active pods of an owner.
func (r *Restart) Pods(owner Workload) int { return r.owners[owner].pods }

// Limit reduces the expected pods of an owner to replicas, because an owner that is scaled down replaces fewer
// pods.
func (e *Evictions) Limit(owner Workload, replicas int) {
	before := &e.owners[owner].before
	before.pods, before.ready = min(before.pods, replicas), min(before.ready, replicas)
}

// Next returns the pods that are not evicted yet, and the number of pods that may be evicted now. Each evicted
// pod without a ready replacement uses a slot.
func (e *Evictions) Next(now *Restart) (left BehindPods, open int) {
	open = now.slots
	for owner, replaced := range e.owners {
		lacks := replaced.lacks(now.owners[owner])
		if lacks == 0 {
			delete(e.owners, owner)
		}
		open -= lacks
	}
	left = slices.DeleteFunc(slices.Clone(now.Evict), func(p BehindPod) bool { return !e.left[p.pod.UID] })
	return left, max(open, 0)
}

// Evicted records the eviction of a pod.
func (e *Evictions) Evicted(now *Restart, pod *BehindPod) {
	owner := workloadOf(pod.pod)
	count := now.owners[owner]
	if e.owners[owner] == nil {
		e.owners[owner] = &replacement{before: count}
	}
	e.owners[owner].evicted++
	count.pods--
	if podstate.True(pod.pod, corev1.PodReady) {
		count.ready--
	}
	now.owners[owner] = count
	e.Failed(pod)
	e.Done++
}

// Failed removes a pod from the pods to evict.
func (e *Evictions) Failed(pod *BehindPod) { delete(e.left, pod.pod.UID) }

// Waiting describes the owners that lacked ready pods at the last call of Next, and the owners of the pods
// that were evicted after this call.
func (e *Evictions) Waiting(now *Restart) string {
	var owners []string
	for owner, replaced := range e.owners {
		owners = append(owners, fmt.Sprintf("%s has %d of %d ready pods", owner, now.owners[owner].ready, replaced.before.ready))
	}
	slices.Sort(owners)
	return strings.Join(owners, "; ")
}
