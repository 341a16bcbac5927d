package podstate

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// State of a pod towards a version.
type State struct {
	// Complete pods hold every sidecar of the set (SPEC §3).
	Complete bool
	// Updated pods hold the version's hash.
	Updated bool
	// Upgradable pods differ from the version in nothing but images.
	Upgradable bool
	// Consistent pods run what their newest upgrade asked for.
	Consistent bool
	// Ready pods serve: Running, Ready, and the standby twins are empty.
	Ready bool
	// Touched pods were upgraded in place at least once.
	Touched bool
	// Moved pods were upgraded in place to the version at hand.
	Moved bool
	// Failed pods have a container that the newest upgrade changed and that cannot start.
	Failed bool
	// Migrating pods hold a standby twin that is yet to be reset; Migrated ones
	// run everything else as asked, so that it can be (SPEC §7.7).
	Migrating, Migrated bool
	// FalseConditionDue pods must be given the entry false for the set in their
	// condition SidecarSetUpgradable; TrueConditionDue ones the entry true.
	FalseConditionDue, TrueConditionDue bool
	// UnavailableBefore pods were not available when they were upgraded, and
	// have not been ready since: the upgrade is not what made them so.
	UnavailableBefore bool
}

// Settled pods run what they were asked to, and serve.
func (s State) Settled() bool { return s.Consistent && s.Ready }

// InFlight pods are unavailable because of an upgrade (SPEC §7.5).
func (s State) InFlight() bool {
	return (s.Updated || s.Touched) && !s.Settled() && !s.UnavailableBefore
}

// Waits reports whether a pod may not be upgraded yet: its previous upgrade is
// still on its way (SPEC §7.2). One that failed may, or no fix could reach it.
func (s State) Waits() bool {
	return !s.Updated && !s.Failed && (!s.Consistent || s.Migrated)
}

// Of compares a pod with the version. Annotations that cannot be read are an
// error that names the pod's annotation.
func (v *Version) Of(pod *corev1.Pod) (State, error) {
	read, err := record.Read(pod.Annotations)
	if err != nil {
		return State{}, err
	}
	return v.OfRecord(pod, read), nil
}

// OfRecord is Of for a pod whose record was read.
func (v *Version) OfRecord(pod *corev1.Pod, read *record.Record) State {
	newest, touched := read.States[v.Set]
	state := State{
		Complete:   v.complete(pod, read.Active),
		Updated:    read.Hashes[v.Set].Hash == v.Hash,
		Upgradable: read.HashesWithoutImage[v.Set].Hash == v.HashWithoutImage,
		Touched:    touched,
		Moved:      touched && newest.Revision == v.Hash,
	}
	standbys := v.standbysToReset(pod, read.Active)
	state.Ready = ready(pod) && len(standbys) == 0
	state.Consistent, state.Failed = taken(pod, newest)
	state.Migrating = len(standbys) > 0
	state.Migrated = state.Migrating && state.Consistent && othersReady(pod, standbys)
	state.UnavailableBefore = touched && unavailableBefore(pod, v.Set)
	state.FalseConditionDue, state.TrueConditionDue = conditionDue(pod, v.Set, state)
	return state
}

// unavailableBefore compares the kubelet's times with each other alone: the
// Ready condition's, as recorded with the write, and as it is now. The
// kubelet moves it whenever the pod becomes ready, or unready.
func unavailableBefore(pod *corev1.Pod, set string) bool {
	if ready(pod) {
		return false
	}
	since, recorded := record.UnavailableSince(pod.Annotations, set)
	transition := ReadyTransition(pod)
	return recorded && since.Equal(&transition)
}

// ReadyTransition is when the pod's Ready condition changed last; zero without
// the condition.
func ReadyTransition(pod *corev1.Pod) metav1.Time {
	if condition := readyCondition(pod); condition != nil {
		return condition.LastTransitionTime
	}
	return metav1.Time{}
}

// Available reports whether an upgrade that is written now takes the pod away:
// it serves, or an earlier upgrade is why it does not.
func (s State) Available(pod *corev1.Pod) bool { return ready(pod) || s.InFlight() }

func (v *Version) complete(pod *corev1.Pod, active map[string]string) bool {
	for _, s := range v.Sidecars {
		if !s.Hot() {
			if Container(pod, s.Name, s.Native) == nil {
				return false
			}
			continue
		}
		twins := s.Twins()
		if !s.isTwin(active[s.Name]) || Container(pod, twins[0], false) == nil || Container(pod, twins[1], false) == nil {
			return false
		}
	}
	return true
}

// TwinVersion is the recorded version of a hot sidecar's container: the
// resourceVersion of the set that it was upgraded by, and 0 once it was emptied, or
// if none was recorded. It is not known if somebody has damaged it.
func TwinVersion(pod *corev1.Pod, container string) (version uint64, known bool) {
	recorded := pod.Annotations[v1alpha1.VersionAnnotationPrefix+container]
	if recorded == "" {
		return 0, true
	}
	version, err := strconv.ParseUint(recorded, 10, 64)
	return version, err == nil
}

// StandbyToReset is the twin that was active before a recorded switch, and still
// has to be given the empty image. A standby that holds another empty image than
// the set's is none.
type StandbyToReset struct {
	Sidecar
	// Container is the twin's own name.
	Container string
}

// StandbysToReset lists those of a pod.
func (v *Version) StandbysToReset(pod *corev1.Pod) ([]StandbyToReset, error) {
	active, err := record.ActiveContainers(pod.Annotations)
	if err != nil {
		return nil, err
	}
	return v.standbysToReset(pod, active), nil
}

func (v *Version) standbysToReset(pod *corev1.Pod, active map[string]string) []StandbyToReset {
	var standbys []StandbyToReset
	for _, s := range v.Sidecars {
		if !s.Hot() || !s.isTwin(active[s.Name]) {
			continue
		}
		standby := s.Twin(active[s.Name])
		version, known := TwinVersion(pod, standby)
		emptied := known && version == 0
		if c := Container(pod, standby, false); c != nil && c.Image != s.EmptyImage && !emptied {
			standbys = append(standbys, StandbyToReset{Sidecar: s, Container: standby})
		}
	}
	return standbys
}

// othersReady reports whether every container but these, and every native sidecar,
// is ready.
func othersReady(pod *corev1.Pod, but []StandbyToReset) bool {
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		if slices.ContainsFunc(but, func(t StandbyToReset) bool { return t.Container == name }) {
			continue
		}
		if status := Status(pod, name, false); status == nil || !status.Ready {
			return false
		}
	}
	for _, status := range Natives(pod) {
		if status == nil || !status.Ready {
			return false
		}
	}
	return true
}

// taken reports whether every container that the newest upgrade changed runs
// what it was changed to, and whether one of them cannot start.
func taken(pod *corev1.Pod, newest record.State) (taken, failed bool) {
	for name := range newest.LastContainerStatuses {
		_, status := changed(pod, name)
		_, stuck := StartFailure(status)
		failed = failed || stuck
	}
	return len(Pending(pod, newest)) == 0, failed
}

// Pending are the changes of an upgrade that the kubelet has not taken, by container: what
// ran before, as it was recorded.
func Pending(pod *corev1.Pod, newest record.State) map[string]record.ContainerStatus {
	var pending map[string]record.ContainerStatus
	for name, before := range newest.LastContainerStatuses {
		container, status := changed(pod, name)
		if container == nil {
			continue
		}
		change := containerChange{container: container, status: status, before: before, patched: newest.UpdateTimestamp.Time}
		if takenChain().Decide(&change) {
			continue
		}
		if pending == nil {
			pending = map[string]record.ContainerStatus{}
		}
		pending[name] = before
	}
	return pending
}

// changed finds a container, or a native sidecar, that an upgrade changed.
func changed(pod *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus) {
	if container := Container(pod, name, false); container != nil {
		return container, Status(pod, name, false)
	}
	return Container(pod, name, true), Status(pod, name, true)
}

func ready(pod *corev1.Pod) bool {
	condition := readyCondition(pod)
	return pod.Status.Phase == corev1.PodRunning && condition != nil && condition.Status == corev1.ConditionTrue
}

func readyCondition(pod *corev1.Pod) *corev1.PodCondition {
	return findCondition(pod, corev1.PodReady)
}

func findCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// ReadySince is when a ready pod became ready; zero when it is not.
func ReadySince(pod *corev1.Pod) time.Time {
	condition := readyCondition(pod)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}
