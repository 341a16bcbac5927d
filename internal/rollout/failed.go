package rollout

import (
	"fmt"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/gate"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/stage"
)

// MaxCrashes is the number of restarts at which a pod counts as failed. Only restarts of an upgraded sidecar
// after its upgrade count.
const MaxCrashes = 2

// FailedPods are the pods that have failed since their upgrade to a version (SPEC §11.6).
type FailedPods struct {
	Count int
	// Example is the first of these pods by name. Detail describes the failure of this pod.
	Example, Detail string
}

// FindFailed finds the pods that have failed since their upgrade to the version. If a share of the control group
// also fails, the same share of the updated pods is not counted. Restarts of sidecars in the control group do not
// count, because these restarts follow an older upgrade. A pod with content whose rollout has ended does not
// count, because the pod was available with this content, and an upgrade is not the cause of the failure.
func FindFailed(version *podstate.Version, pods []Pod, step *protocol.Step) (failed FailedPods) {
	var updated int
	var control controlGroup
	for i := range pods {
		pod := &pods[i]
		switch {
		case control.add(version, pod):
			continue
		case !pod.Updated, !pod.UpgradedToVersion, pod.RolloutEnded:
			continue
		}
		updated++
		detail := failure(version, pod, step)
		if detail == "" {
			continue
		}
		failed.Count++
		if name := pod.Reference().String(); failed.Example == "" || name < failed.Example {
			failed.Example, failed.Detail = name, detail
		}
	}
	failed.Count = max(failed.Count-control.expected(updated), 0)
	return failed
}

// failure describes the failure of a pod. The result is empty if the pod has not failed.
func failure(version *podstate.Version, pod *Pod, step *protocol.Step) string {
	if start := version.FailedStart(pod.Pod); start != nil && !start.Before {
		return fmt.Sprintf("container %s: %s, image %s", start.Container, start.Reason, start.Image)
	}
	if pod.Crashes >= MaxCrashes {
		return fmt.Sprintf("a sidecar restarted %d times after its upgrade", pod.Crashes)
	}
	return pod.Unhealthy.describe(step)
}

// controlGroup counts the pods with failures that no upgrade of this rollout caused. The group contains the
// upgradable pods that are not updated yet, and the updated pods that were unavailable before their upgrade and
// have not been healthy since. A recovering pod still counts as failed, because the other pods of its node may
// become ready later.
type controlGroup struct {
	old, oldFailed int
	// dead is the number of updated pods in the group, and of failed pods that cannot be upgraded yet, for
	// example because their node does not respond. A rollout upgrades unavailable pods first and waiting pods
	// last, so the share of failures among these pods is not representative.
	dead int
}

// add reports whether a pod belongs to the group, and counts such a pod.
func (c *controlGroup) add(version *podstate.Version, pod *Pod) bool {
	start := version.FailedStart(pod.Pod)
	switch {
	case !pod.Updated && pod.Upgradable:
		c.addOld(pod.Waits() || pod.InBackoff, pod.Unhealthy != 0 || pod.Recovering || start != nil)
		return true
	case pod.Updated && (pod.UnavailableBefore && pod.Unhealthy != 0 || pod.Recovering) && pod.Crashes < MaxCrashes && (start == nil || start.Before):
		c.dead++
		return true
	}
	return false
}

func (c *controlGroup) addOld(stuck, failed bool) {
	switch {
	case stuck && failed:
		c.dead++
		return
	case failed:
		c.oldFailed++
	}
	c.old++
}

// expected returns the number of updated pods that are expected to fail for reasons other than the upgrade.
// updated is the number of updated pods outside the group. Each dead pod of the group accounts for at most one of
// these failures, even if few pods of the older version are left.
func (c *controlGroup) expected(updated int) int {
	share := func(failed, group int) int {
		if group == 0 {
			return 0
		}
		return (failed*updated + group - 1) / group
	}
	return max(share(c.oldFailed, c.old), share(c.oldFailed+c.dead, max(c.old+c.dead, updated)))
}

// Accept returns the stage after a resume. The limit of the stage increases by the number of pods that failed
// before the resume.
func Accept(set *v1alpha1.SidecarSet, pods []Pod, current *protocol.Stage) (*protocol.Stage, error) {
	accepted := *current
	accepted.Accept, accepted.Failed = false, nil
	if _, limited, err := stage.MaxFailed(current, len(pods)); err != nil || !limited {
		return &accepted, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	accepted.Tolerated = max(current.Tolerated, FindFailed(version, pods, current.Step).Count)
	if current.Failed != nil {
		accepted.Tolerated = max(accepted.Tolerated, *current.Failed)
	}
	return &accepted, nil
}

// Failure returns the reason to pause or to roll back a rollout: a user aborted the rollout, a gate has
// failed, or the failed pods exceed the limit of the stage. Otherwise, the result is nil. Gates and failed
// pods do not count if the spec has paused the rollout, or if the rollout has ended.
func Failure(set *v1alpha1.SidecarSet, pods []Pod, plan *Plan, current *protocol.Stage) (*protocol.Failure, error) {
	if current != nil && current.Aborted != nil {
		return aborted(set, current.Aborted), nil
	}
	// The spec is checked instead of PhasePaused, because a paused rollout that only waits for upgraded pods is in
	// PhaseWaiting.
	if plan.Phase.Ended() || set.Spec.UpdateStrategy.Paused {
		return nil, nil
	}
	if failed := gateFailure(set, current); failed != nil {
		return failed, nil
	}
	limit, limited, err := stage.MaxFailed(current, plan.Counts.Updated+plan.Counts.Remaining)
	if err != nil || !limited {
		return nil, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	failed := FindFailed(version, pods, current.Step)
	if failed.Count <= limit {
		return nil, nil
	}
	failing := "pods"
	if failed.Count == 1 {
		failing = "pod"
	}
	reason := fmt.Sprintf("%d %s failed after the upgrade, and %d are allowed, such as %s (%s)", failed.Count, failing, limit, failed.Example, failed.Detail)
	failure := &protocol.Failure{Pods: failed.Count, Reason: reason}
	if current.Step.Rollback {
		rollBack(failure, set)
	}
	return failure, nil
}

// gateFailure returns the failure of a gate of the current step, or nil (SPEC §11.14).
func gateFailure(set *v1alpha1.SidecarSet, current *protocol.Stage) *protocol.Failure {
	if !current.Limits() {
		return nil
	}
	state := current.EndedGate(protocol.GateFailure)
	if state == nil {
		return nil
	}
	failure := &protocol.Failure{Reason: gate.Reason(current.Title(), *state)}
	if current.Step.Rollback {
		rollBack(failure, set)
	}
	return failure
}

func aborted(set *v1alpha1.SidecarSet, by *protocol.Approval) *protocol.Failure {
	reason := fmt.Sprintf("the rollout of generation %d was aborted", set.Generation)
	if by.By != "" {
		reason = fmt.Sprintf("%s aborted the rollout of generation %d", by.By, set.Generation)
	}
	if by.Reason != "" {
		reason += ": " + by.Reason
	}
	failure := &protocol.Failure{Reason: reason}
	rollBack(failure, set)
	return failure
}

// rollBack adds the quarantine of the content of a completed SidecarSet to a failure. If the last good
// revision is missing or has the same content, rollBack instead adds to the reason that the content is not
// rolled back.
func rollBack(failure *protocol.Failure, set *v1alpha1.SidecarSet) {
	hash, good := set.Annotations[v1alpha1.HashAnnotation], set.Status.LastGoodRevision()
	if good == nil || good.Hash == hash {
		failure.Reason += "; it is not rolled back, because no rollout of other content has ended, or this content was rolled out before"
		return
	}
	failure.Quarantine = &protocol.Quarantine{Hash: hash, Revision: good.Revision, Reason: failure.Reason}
}
