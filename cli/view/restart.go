package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// Restart has the pods that get the newest version of a SidecarSet only when they are recreated.
type Restart struct {
	Name string
	// Evict are the pods that a controller recreates after their eviction.
	Evict BehindPods
	// Keep are the pods that are not evicted. Their reason names the remedy.
	Keep BehindPods
	// slots of maxUnavailable that upgrades do not use.
	slots  int
	owners map[workload]available
}

// workload is the owner of pods.
type workload struct{ namespace, kind, name string }

func workloadOf(pod *corev1.Pod) workload {
	kind, name := podstate.Owner(pod)
	return workload{pod.Namespace, kind, name}
}

func (w workload) String() string {
	return strings.ToLower(w.kind) + "/" + w.name + " in " + w.namespace
}

// available counts the active pods of a workload.
type available struct{ pods, ready int }

// lacks is the number of pods that are missing, or not ready, compared with an earlier count.
func (a available) lacks(before available) int {
	return max(before.pods-a.pods, before.ready-a.ready, 0)
}

// NewRestart fails if recreated pods would not get the newest version.
func NewRestart(in *Input) (*Restart, error) {
	if err := in.recreatable(); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", in.Set.Name, err)
	}
	matched, version, err := in.matched()
	if err != nil {
		return nil, err
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
	unavailable := 0
	for i := range matched {
		pod := &matched[i]
		if pod.UnavailableByUpgrade() {
			unavailable++
		}
		if !pod.Updated && !pod.Upgradable {
			behind = append(behind, in.behind(pod.Pod, PodNotUpgradable, differs))
		}
	}
	slots, err := rollout.MaxUnavailable(&in.Set.Spec.UpdateStrategy, population)
	if err != nil {
		return nil, err
	}
	r := &Restart{Name: in.Set.Name, slots: slots - unavailable, owners: countByOwner(in.Pods)}
	r.divide(behind.sorted())
	if slots == 0 && len(r.Evict) > 0 {
		return nil, fmt.Errorf("maxUnavailable of SidecarSet %s is 0: no pod may be evicted (%s)", r.Name, PatchStrategy(r.Name, "maxUnavailable", "1"))
	}
	return r, nil
}

func countByOwner(pods []*corev1.Pod) map[workload]available {
	owners := map[workload]available{}
	for _, pod := range pods {
		if !match.Active(pod) {
			continue
		}
		count := owners[workloadOf(pod)]
		count.pods++
		if ready := podstate.Condition(pod, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue {
			count.ready++
		}
		owners[workloadOf(pod)] = count
	}
	return owners
}

// recreatable returns the reason that recreated pods would not get the newest version.
func (in *Input) recreatable() error {
	injection := &in.Set.Spec.InjectionStrategy
	condition := meta.FindStatusCondition(in.Set.Status.Conditions, v1alpha1.ConditionInjected)
	switch {
	case in.Set.DeletionTimestamp != nil:
		return errors.New("it is being deleted: recreated pods would lack its sidecars")
	case injection.Paused:
		return errors.New("spec.injectionStrategy.paused is true: recreated pods would lack its sidecars")
	case injection.Revision != nil:
		return errors.New("spec.injectionStrategy.revision is set: recreated pods would get the pinned revision, not the newest one")
	case in.Webhook.Absent, in.Webhook.Installed != nil && len(in.Webhook.Installed.Rules) == 0, condition != nil && condition.Reason == v1alpha1.ReasonWebhookUnavailable:
		return errors.New("the webhook of pods does not answer: recreated pods would lack its sidecars (kubectl sidecarset check)")
	}
	return nil
}

// divide keeps pods that nothing recreates, and pods whose work an eviction would lose.
func (r *Restart) divide(behind BehindPods) {
	for _, pod := range behind {
		switch kind, name := podstate.Owner(pod.pod); kind {
		case "":
			pod.Reason = fmt.Sprintf("no controller recreates it; create it again after: kubectl delete pod %s -n %s", pod.Name, pod.Namespace)
		case "Job":
			pod.Reason = fmt.Sprintf("an eviction counts as a failure of job/%s; the pods of its next run get the sidecars", name)
		default:
			r.Evict = append(r.Evict, pod)
			continue
		}
		r.Keep = append(r.Keep, pod)
	}
}

// Text lists the pods of a dry run.
func (r *Restart) Text(s Style) string {
	if len(r.Evict) == 0 {
		return "sidecarset/" + r.Name + ": no pod has to be evicted\n" + r.KeptText()
	}
	return r.Evict.Text(s) + r.KeptText()
}

// KeptText has a line for each pod that is not evicted.
func (r *Restart) KeptText() string {
	var out strings.Builder
	for i := range r.Keep {
		fmt.Fprintf(&out, "not evicted: %s/%s: %s\n", r.Keep[i].Namespace, r.Keep[i].Name, r.Keep[i].Reason)
	}
	return out.String()
}

// Evictions are the evictions of a restart.
type Evictions struct {
	// left are the pods of the start that are not evicted yet. Their replacements are not evicted.
	left map[types.UID]bool
	// before has the pods of each owner when its first pod was evicted, until the owner has as
	// many again.
	before map[workload]available
	Done   int
}

// NewEvictions starts a restart.
func NewEvictions(start *Restart) *Evictions {
	e := &Evictions{left: map[types.UID]bool{}, before: map[workload]available{}}
	for i := range start.Evict {
		e.left[start.Evict[i].pod.UID] = true
	}
	return e
}

// Next returns the pods that are left, and how many of them may be evicted now. An owner that
// lacks pods uses slots.
func (e *Evictions) Next(now *Restart) (left BehindPods, open int) {
	open = now.slots
	for owner, before := range e.before {
		lacks := now.owners[owner].lacks(before)
		if lacks == 0 {
			delete(e.before, owner)
		}
		open -= lacks
	}
	left = slices.DeleteFunc(slices.Clone(now.Evict), func(p BehindPod) bool { return !e.left[p.pod.UID] })
	return left, max(open, 0)
}

// Evicted records the eviction of a pod.
func (e *Evictions) Evicted(now *Restart, pod *BehindPod) {
	owner := workloadOf(pod.pod)
	if _, ok := e.before[owner]; !ok {
		e.before[owner] = now.owners[owner]
	}
	delete(e.left, pod.pod.UID)
	e.Done++
}

// Waiting names the owners that lack pods.
func (e *Evictions) Waiting(now *Restart) string {
	var owners []string
	for owner, before := range e.before {
		owners = append(owners, fmt.Sprintf("%s has %d of %d ready pods", owner, now.owners[owner].ready, before.ready))
	}
	slices.Sort(owners)
	return strings.Join(owners, "; ")
}
