package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// observation is what there is to say about a set.
type observation struct {
	// invalid says why the set's pods cannot be told; plan is empty then.
	invalid error
	plan    rollout.Plan
	broken  brokenPods
	// uninjected pods match but lack the set.
	uninjected uninjectedPods
	// held says that somebody paused the run by signal.
	held bool
	// engine says why Temporal takes no rollouts; nil while it does.
	engine error
}

// brokenPods are matched pods with a sidecar that cannot start.
type brokenPods struct {
	count int
	// reason is one of ours; example and detail are of the first by name.
	reason, example, detail string
}

// observe plans over the set's pods, without acting on the plan.
func (r *reconciler) observe(ctx context.Context, set *v1alpha1.SidecarSet, pods []*corev1.Pod) observation {
	seen := observation{engine: r.engine.wait(ctx), held: r.handovers.held(set)}
	matched, err := r.memories.Population(set, pods, r.namespaceLabels(ctx))
	if err != nil {
		seen.invalid = err
		return seen
	}
	// Caches list in no order, yet the same pods must make the same message.
	slices.SortFunc(matched, func(a, b rollout.Pod) int {
		return cmp.Or(strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name))
	})
	if seen.plan, seen.invalid = rollout.Next(set, matched, nil); seen.invalid != nil {
		return seen
	}
	if seen.broken, seen.invalid = findBroken(set, matched); seen.invalid != nil {
		return seen
	}
	seen.uninjected, seen.invalid = r.findUninjected(ctx, set)
	r.meters.withoutSidecar.WithLabelValues(set.Name).Set(float64(seen.uninjected.count))
	return seen
}

func findBroken(set *v1alpha1.SidecarSet, sorted []rollout.Pod) (brokenPods, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return brokenPods{}, err
	}
	var broken brokenPods
	for i := range sorted {
		reason, detail := brokenSidecar(sorted[i].Pod, version.Sidecars)
		if reason == "" {
			continue
		}
		broken.count++
		if broken.count == 1 {
			broken.reason, broken.detail, broken.example = reason, detail, sorted[i].Reference().String()
		}
	}
	return broken, nil
}

func brokenSidecar(pod *corev1.Pod, sidecars []podstate.Sidecar) (reason, detail string) {
	for _, s := range sidecars {
		names := []string{s.Name}
		if s.Hot() {
			twins := s.Twins()
			names = twins[:]
		}
		for _, container := range names {
			status := podstate.Status(pod, container, s.Native)
			if status == nil || status.State.Waiting == nil {
				continue
			}
			if reason, said := waitingReason(status.State.Waiting.Reason); reason != "" {
				return reason, fmt.Sprintf("container %s: %s, image %s", container, said, status.Image)
			}
		}
	}
	return "", ""
}

// waitingReason tells a kubelet's reason for a container that does not run as
// a reason of ours, and as words that stay the same while nothing changes: the
// kubelet alternates between the two about images. Both are empty for a
// container that is merely on its way.
func waitingReason(kubelet string) (reason, said string) {
	switch kubelet {
	case "", "ContainerCreating", "PodInitializing":
		return "", ""
	case "ErrImagePull", "ImagePullBackOff":
		return reasonImagePull, "ImagePullBackOff"
	}
	return reasonCannotStart, kubelet
}

// describe writes the observation into a status. Of a set whose pods cannot be
// told, the counts stay those of the generation they were made for.
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
