// Package podstate compares a pod with a version of a SidecarSet. The state of the pod shows whether the pod has
// the sidecars, is updated, runs the images of the newest upgrade, and is ready (SPEC §3, §7).
package podstate

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// State is the state of a pod relative to a version.
type State struct {
	// Complete is set if the pod has every sidecar of the SidecarSet (SPEC §3).
	Complete bool
	// Updated is set if the pod has the hash of the version, and no unfinished resize.
	Updated bool
	// Upgradable is set if the pod can be upgraded in place. The pod differs from the version only in images, and
	// in amounts of CPU and memory that the kubelet can resize. An upgrade does not fail the Job of the pod.
	Upgradable bool
	// RestartsNothing is set if the upgrade to the version only resizes containers and restarts no container.
	RestartsNothing bool
	// Resizing is set while the kubelet has to resize containers of the pod for the newest upgrade.
	Resizing bool
	// ResizeRestarts is set if a resize of the pod may restart a container. The resize is in progress, or the pod
	// is not ready and the upgrade after the resize is not written yet.
	ResizeRestarts bool
	// Consistent is set if the pod runs the images that the newest upgrade requested, or has content whose
	// rollout has ended.
	Consistent bool
	// Ready is set if the pod is Running and Ready, and its standby twins are empty.
	Ready bool
	// NodeLost is set if the node of the pod does not respond. The containers of the pod may still run.
	NodeLost bool
	// UpgradedInPlace is set if the pod was upgraded in place at least once.
	UpgradedInPlace bool
	// UpgradedToVersion is set if the pod was upgraded in place to this version.
	UpgradedToVersion bool
	// Failed is set if a container that the newest upgrade changed cannot start.
	Failed bool
	// NotStarted is set if the newest upgrade is in progress and changed only containers that have never started.
	NotStarted bool
	// Crashes is the highest number of restarts since the newest upgrade, among the containers that this upgrade
	// changed. The restart that applies the upgrade does not count.
	Crashes int32
	// Migrating is set if a standby twin of the pod is not reset yet. Migrated is set if these standby twins can
	// be reset, because all other containers of the pod run the requested images and are ready (SPEC §7.7).
	Migrating, Migrated bool
	// Resetting is set while the kubelet restarts a standby twin that a reset emptied (SPEC 7.7.4). A twin that
	// crashes with the empty image has restarted.
	Resetting bool
	// FalseConditionDue is set if the entry for the SidecarSet in the condition SidecarSetUpgradable must become
	// false. TrueConditionDue is set if this entry must become true.
	FalseConditionDue, TrueConditionDue bool
	// UnavailableBefore is set if the pod was unavailable when it was upgraded, and has not been ready since. The
	// upgrade did not make the pod unavailable.
	UnavailableBefore bool
	// RolloutEnded is set if the pod has content whose rollout has ended. The pod was available with this
	// content. If the pod is unavailable now, an upgrade is not the cause.
	RolloutEnded bool
}

// Converged reports whether the pod is consistent and ready, and no resize of the pod is in progress.
func (s *State) Converged() bool { return s.available() && !s.Resizing }

func (s *State) available() bool { return s.Consistent && s.Ready && !s.ResizeRestarts }

// NeedsSlot reports whether the upgrade of the pod makes a ready pod unavailable (SPEC §7.5).
func (s *State) NeedsSlot() bool { return s.Ready && !s.RestartsNothing && !s.ResizeRestarts }

// UnavailableByUpgrade reports whether an upgrade made the pod unavailable (SPEC §7.5).
func (s *State) UnavailableByUpgrade() bool {
	if s.ResizeRestarts {
		return !s.UnavailableBefore
	}
	return (s.Updated || s.UpgradedInPlace) && !s.available() && !s.UnavailableBefore && !s.RolloutEnded
}

// Waits reports whether a pod cannot be upgraded yet because its previous upgrade is in progress, or because its
// node does not respond (SPEC §7.2). A failed pod does not wait, so that another upgrade can fix the pod. A
// NotStarted pod does not wait either, because its containers may never start, and another upgrade interrupts no
// running container.
func (s *State) Waits() bool {
	return !s.Updated && !s.Failed && !s.NotStarted && (!s.Consistent || s.Migrated || s.NodeLost)
}

// Of compares a pod with the version. An annotation that cannot be parsed is an error. The error
// names the annotation.
func (v *Version) Of(pod *corev1.Pod) (State, error) {
	read, err := record.Read(pod.Annotations)
	if err != nil {
		return State{}, err
	}
	return v.OfRecord(pod, read), nil
}

// OfRecord compares a pod with the version. read is the record of the pod.
func (v *Version) OfRecord(pod *corev1.Pod, read *record.Record) State {
	newest, upgraded := read.States[v.Set]
	state := State{
		Complete:          v.complete(pod, read.Active),
		Updated:           read.Hashes[v.Set].Hash == v.Hash && !unfinishedResize(read, v.Set),
		UpgradedInPlace:   upgraded,
		UpgradedToVersion: upgraded && newest.Revision == v.Hash,
	}
	v.judgeResources(&state, pod, read)
	state.Upgradable = state.Upgradable && (state.Updated || state.RestartsNothing || v.mayRestartIn(pod))
	standbys := v.StandbysToReset(pod, read.Active)
	state.Ready = Ready(pod) && len(standbys) == 0
	state.NodeLost = NodeLost(pod)
	state.RolloutEnded = v.rolloutEnded(read.Hashes[v.Set].Hash, newest, upgraded)
	if state.RolloutEnded && !unfinishedResize(read, v.Set) {
		// An upgrade is not the cause of a resize after the end of the rollout.
		state.Resizing, state.ResizeRestarts = false, false
	}
	v.judgeProgress(&state, pod, read, standbys)
	_, resized := read.Resizes[v.Set]
	state.UnavailableBefore = (upgraded || resized) && unavailableBefore(pod, v.Set)
	state.FalseConditionDue, state.TrueConditionDue = conditionDue(pod, v.Set, state)
	return state
}

// judgeProgress sets the fields of the state that show the progress of the newest upgrade.
func (v *Version) judgeProgress(state *State, pod *corev1.Pod, read *record.Record, standbys []StandbyToReset) {
	newest := read.States[v.Set]
	pending, empty := Pending(pod, newest), v.activeTwinIsEmpty(pod, read.Active)
	state.Consistent = len(pending) == 0 && !empty || state.RolloutEnded
	state.Failed = failed(pod, newest, pending)
	state.NotStarted = len(pending) > 0 && notStarted(pod, newest)
	state.Crashes = crashes(pod, newest)
	state.Migrating = len(standbys) > 0
	state.Resetting = v.resetting(pod, read, pending, standbys)
	state.Migrated = state.Migrating && onlyOf(standbys, pending) && othersReady(pod, standbys) && !empty
}

// mayRestartIn reports whether an upgrade may restart a sidecar of a pod without a failure of the pod's Job (SPEC
// 7.2.13).
func (v *Version) mayRestartIn(pod *corev1.Pod) bool {
	return !CountsRestarts(pod) || pod.Spec.NodeName == "" || v.neverStarted(pod)
}

// neverStarted reports whether no sidecar of the version has ever started in a pod, and none of these sidecars
// can start, so that an upgrade restarts no container. A sidecar without a status may be running, because the
// kubelet reports a new container with a delay.
func (v *Version) neverStarted(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(v.Sidecars, func(s Sidecar) bool {
		return slices.ContainsFunc(s.InPod(), func(name string) bool {
			status := Status(pod, name, s.Native)
			_, failed := StartFailure(status)
			return !failed || status.ImageID != "" || status.RestartCount > 0
		})
	})
}

// Available reports whether the pod counts as available before an upgrade: the pod is ready, or an earlier
// upgrade made the pod unavailable.
func (s *State) Available(pod *corev1.Pod) bool { return Ready(pod) || s.UnavailableByUpgrade() }

func (v *Version) complete(pod *corev1.Pod, active map[string]string) bool {
	for _, s := range v.Sidecars {
		if s.Hot() && !s.isTwin(active[s.Name]) {
			return false
		}
		for _, name := range s.InPod() {
			if Container(pod, name, s.Native) == nil {
				return false
			}
		}
	}
	return true
}

// TwinVersion returns the recorded version of a twin. The version is the resourceVersion of the
// SidecarSet that upgraded the twin, or 0 if the twin is empty or has no record. known is false
// if the record cannot be parsed.
func TwinVersion(pod *corev1.Pod, container string) (version uint64, known bool) {
	recorded := pod.Annotations[v1alpha1.VersionAnnotationPrefix+container]
	if recorded == "" {
		return 0, true
	}
	version, err := strconv.ParseUint(recorded, 10, 64)
	return version, err == nil
}

// StandbyToReset is the twin that was active before the last switch and does not run the
// empty image yet. A twin that was emptied with another empty image needs no reset.
type StandbyToReset struct {
	Sidecar
	// Container is the name of the twin.
	Container string
}

// StandbysToReset returns the standby twins of a pod that must be reset to the empty image. active maps each hot
// sidecar to its active twin.
func (v *Version) StandbysToReset(pod *corev1.Pod, active map[string]string) []StandbyToReset {
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

// resetting reports whether the kubelet has not observed the reset of a standby twin, or whether the emptied twin
// has not become ready and has not crashed either. pending contains the changes that the kubelet has not observed.
// standbys contains the twins that are not emptied yet.
func (v *Version) resetting(pod *corev1.Pod, read *record.Record, pending map[string]record.ContainerStatus, standbys []StandbyToReset) bool {
	return slices.ContainsFunc(v.Sidecars, func(s Sidecar) bool {
		if !s.Hot() || !s.isTwin(read.Active[s.Name]) {
			return false
		}
		standby := s.Twin(read.Active[s.Name])
		before, changed := read.States[v.Set].LastContainerStatuses[standby]
		if !changed || slices.ContainsFunc(standbys, func(t StandbyToReset) bool { return t.Container == standby }) {
			return false
		}
		if _, unobserved := pending[standby]; unobserved {
			return true
		}
		status := Status(pod, standby, false)
		return status != nil && !status.Ready && before.RestartCount != nil && status.RestartCount == *before.RestartCount+1
	})
}

// othersReady reports whether all native sidecars and all containers of a pod are ready. othersReady ignores the
// twins in but.
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

// onlyOf reports whether all changes in pending are changes of the twins in standbys.
func onlyOf(standbys []StandbyToReset, pending map[string]record.ContainerStatus) bool {
	for name := range pending {
		if !slices.ContainsFunc(standbys, func(t StandbyToReset) bool { return t.Container == name }) {
			return false
		}
	}
	return true
}

// failed reports whether a container that the newest upgrade changed cannot start, or has ended and was not
// restarted. pending contains the changes that the kubelet has not observed.
func failed(pod *corev1.Pod, newest record.State, pending map[string]record.ContainerStatus) bool {
	for name := range newest.LastContainerStatuses {
		_, status := Changed(pod, name)
		reason, stopped := Stopped(status)
		if _, unobserved := pending[name]; stopped && (reason != terminated || unobserved && observedGeneration(pod)) {
			return true
		}
	}
	return false
}

// activeTwinIsEmpty reports whether the active twin of a hot sidecar still runs the empty image. The kubelet
// starts a new pod with the images that the kubelet observed first, so the twin may be ready with the empty
// image before the kubelet restarts the twin with the image of an upgrade.
func (v *Version) activeTwinIsEmpty(pod *corev1.Pod, active map[string]string) bool {
	return slices.ContainsFunc(v.Sidecars, func(s Sidecar) bool {
		if !s.Hot() || !s.isTwin(active[s.Name]) {
			return false
		}
		container, status := Container(pod, active[s.Name], false), Status(pod, active[s.Name], false)
		empty := canonicalImage(s.EmptyImage)
		return container != nil && status != nil && canonicalImage(container.Image) != empty && canonicalImage(status.Image) == empty
	})
}

// notStarted reports whether all containers that the newest upgrade changed had never started before, and
// have not started since, for example because no node has room for the pod.
func notStarted(pod *corev1.Pod, newest record.State) bool {
	for name, before := range newest.LastContainerStatuses {
		_, status := Changed(pod, name)
		if before.ImageID != "" || status != nil && (status.ImageID != "" || status.State.Running != nil) {
			return false
		}
	}
	return true
}

// crashes returns the highest number of restarts of a container since the newest upgrade, without the restart
// that applies the upgrade. A restart count below the recorded count means 0 restarts, because the count may be
// lost if the node is recreated.
func crashes(pod *corev1.Pod, newest record.State) (most int32) {
	for name, before := range newest.LastContainerStatuses {
		if _, status := Changed(pod, name); status != nil && before.RestartCount != nil {
			expected := int32(1)
			if before.Resizing {
				expected++ // the restart by the resize
			}
			most = max(most, status.RestartCount-*before.RestartCount-expected)
		}
	}
	return most
}

// Pending returns the changes of an upgrade that the kubelet has not observed. The result maps the name of a
// container to the recorded status of the container before the change.
func Pending(pod *corev1.Pod, newest record.State) map[string]record.ContainerStatus {
	var pending map[string]record.ContainerStatus
	for name, before := range newest.LastContainerStatuses {
		container, status := Changed(pod, name)
		change := containerChange{container: container, status: status, before: before, patched: newest.UpdateTimestamp.Time}
		if container == nil || change.observed() {
			continue
		}
		if pending == nil {
			pending = map[string]record.ContainerStatus{}
		}
		pending[name] = before
	}
	return pending
}

// Changed returns a container, or a native sidecar, that an upgrade changed, and the status of the container.
// The container is nil if the pod has no such container. The status is nil if the kubelet has not reported
// the status.
func Changed(pod *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus) {
	if container := Container(pod, name, false); container != nil {
		return container, Status(pod, name, false)
	}
	return Container(pod, name, true), Status(pod, name, true)
}

// Ready reports whether a pod is running and has the condition Ready.
func Ready(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && True(pod, corev1.PodReady)
}

// NodeLost reports whether the control plane has set the condition Ready to False because the node does not
// respond. If the kubelet sets Ready to False, ContainersReady is False too, or a readiness gate is not true.
func NodeLost(pod *corev1.Pod) bool {
	ready := Condition(pod, corev1.PodReady)
	if pod.Status.Phase != corev1.PodRunning || ready == nil || ready.Status == corev1.ConditionTrue || !True(pod, corev1.ContainersReady) {
		return false
	}
	return !slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool { return !True(pod, gate.ConditionType) })
}

// True reports whether a pod has a condition with the status True.
func True(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	condition := Condition(pod, kind)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// Condition returns a condition of a pod, or nil.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// ReadySince returns the time at which a ready pod became ready, or the zero time.
func ReadySince(pod *corev1.Pod) time.Time {
	condition := Condition(pod, corev1.PodReady)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}
