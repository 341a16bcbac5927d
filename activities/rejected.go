package activities

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// markRejected returns the pods of population whose upgrade was rejected, and sets InBackoff on the pods that are
// not due for a retry.
func markRejected(population []rollout.Pod, rejected protocol.Rejected) map[protocol.PodReference]bool {
	if len(rejected.Pods) == 0 {
		return nil
	}
	all, again := rejected.Pods.Set(), rejected.Pods[:rejected.Again].Set()
	found := map[protocol.PodReference]bool{}
	for i := range population {
		pod := &population[i]
		if print := protocol.FingerprintOf(pod.UID); all[print] && !pod.Updated {
			found[pod.Reference()], pod.InBackoff = true, !again[print]
		}
	}
	return found
}

// markRejectedConditions sets ConditionInBackoff on the pods of population whose condition was rejected and is
// not due for a retry. markRejectedConditions returns the rejected pods whose condition no longer has to be
// written.
func markRejectedConditions(population []rollout.Pod, rejected protocol.Rejected) (gone protocol.Fingerprints) {
	if len(rejected.Pods) == 0 {
		return nil
	}
	resting, due := rejected.Pods[rejected.Again:].Set(), map[protocol.Fingerprint]bool{}
	for i := range population {
		pod := &population[i]
		print := protocol.FingerprintOf(pod.UID)
		pod.ConditionInBackoff = resting[print]
		due[print] = due[print] || pod.FalseConditionDue || pod.TrueConditionDue
	}
	return rejected.Pods.Without(due)
}

// gone returns the rejected pods that are no longer upgradable, so that the run removes these pods from the list
// of rejected pods. Otherwise, these pods would use up the limited number of retries.
func gone(rejected protocol.Rejected, plan *rollout.Plan) protocol.Fingerprints {
	if len(rejected.Pods) == 0 {
		return nil
	}
	upgradable := map[protocol.Fingerprint]bool{}
	for pod := range plan.Upgradable {
		upgradable[protocol.FingerprintOf(pod.UID)] = true
	}
	return rejected.Pods.Without(upgradable)
}
