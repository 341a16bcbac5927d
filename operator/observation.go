package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
)

// observation is what status says about a set.
type observation struct {
	// invalid is why the set's pods cannot be determined; plan is empty then.
	invalid error
	plan    rollout.Plan
	broken  brokenPods
	// uninjected pods match but lack the set.
	uninjected uninjectedPods
	// hold is set while the run is paused by signal, as of the last check.
	hold *v1alpha1.RolloutHold
	// fault is what is wrong with the workers, or with reading the run.
	fault fault
	// temporal is why Temporal takes no rollouts; nil while it does.
	temporal error
}

// brokenPods are matched pods with a sidecar that cannot start.
type brokenPods struct {
	count int
	// reason is that of Degraded; example and detail are of the first pod by name.
	reason, example, detail string
}

// observe plans the rollout of the set's pods, and finds the broken and the uninjected
// ones.
func (r *reconciler) observe(ctx context.Context, set *v1alpha1.SidecarSet, pods []*corev1.Pod) observation {
	seen := observation{temporal: r.rollouts.awaitProbe(ctx)}
	if set.Status.Rollout != nil {
		seen.hold = set.Status.Rollout.Hold
	}
	matched, err := r.populations.Population(set, pods, kube.NamespaceLabels(ctx, r.client))
	if err != nil {
		seen.invalid = err
		return seen
	}
	if seen.plan, seen.invalid = rollout.Next(set, matched, nil); seen.invalid != nil {
		return seen
	}
	if seen.broken, seen.invalid = findBroken(set, matched); seen.invalid != nil {
		return seen
	}
	seen.uninjected, seen.invalid = r.findUninjected(ctx, set)
	r.metrics.withoutSidecar.WithLabelValues(set.Name).Set(float64(seen.uninjected.count))
	return seen
}

// findBroken gives the same answer in whatever order the cache lists the pods.
func findBroken(set *v1alpha1.SidecarSet, pods []rollout.Pod) (brokenPods, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return brokenPods{}, err
	}
	var broken brokenPods
	for i := range pods {
		failed := version.FailedStart(pods[i].Pod)
		if failed == nil {
			continue
		}
		broken.count++
		if name := pods[i].Reference().String(); broken.count == 1 || name < broken.example {
			broken.reason, broken.example = startFailureReason(failed.Reason), name
			broken.detail = fmt.Sprintf("container %s: %s, image %s", failed.Container, failed.Reason, failed.Image)
		}
	}
	return broken, nil
}

// startFailureReason is the reason of Degraded for the kubelet's.
func startFailureReason(kubelet string) string {
	if kubelet == podstate.ImagePullBackOff {
		return kubelet
	}
	return reasonCannotStart
}

// hasWork reports whether there is something for the run to do now.
func (o *observation) hasWork() bool {
	return len(o.plan.Pods) > 0 || o.plan.Counts.Migrated > 0
}

// inProgress reports whether pods are still to be upgraded, or to settle.
func (o *observation) inProgress() bool {
	return o.plan.Phase == protocol.PhaseProgressing || o.plan.Phase == protocol.PhaseWaiting
}

// unfinished reports whether the run has to be checked.
func (o *observation) unfinished() bool {
	return o.inProgress() || o.plan.Phase == protocol.PhasePaused || o.hold != nil
}

// upgradableConditionPending reports whether a pod that cannot be upgraded does not
// have its condition yet.
func (o *observation) upgradableConditionPending() bool {
	return slices.ContainsFunc(o.plan.FalseConditions, func(pod protocol.PodReference) bool {
		return slices.Contains(o.plan.NotUpgradable, pod)
	})
}

// describe writes the observation into a status. The counts of an invalid set stay
// those of the generation they were made for.
func (o *observation) describe(status *v1alpha1.SidecarSetStatus, set *v1alpha1.SidecarSet, now time.Time) {
	if o.invalid == nil {
		counts := o.plan.Counts
		status.ObservedGeneration = set.Generation
		status.MatchedPods = int32(counts.Matched)
		status.UpdatedPods = int32(counts.Updated)
		status.ReadyPods = int32(counts.Ready)
		status.UpdatedReadyPods = int32(counts.UpdatedReady)
	}
	o.setConditions(status, set, now)
}

func sameStatus(a, b *v1alpha1.SidecarSetStatus) bool { return equality.Semantic.DeepEqual(a, b) }
