package observer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// FleetStage is a stage of a fleet.
type FleetStage struct {
	// Clusters contains the names of the clusters.
	Clusters []string
	Bake     time.Duration
}

// Fleet checks the order of the clusters of a fleet (SPEC §12.2): a pod has content only after the clusters
// of each earlier stage have completed the content and the bake time of the stage has ended. The image of a
// sidecar identifies content.
type Fleet struct {
	judge
	set, container, initial string
	stages                  []FleetStage
	contents                map[string]*fleetContent
	away                    map[string][]interval
	checked                 int
}

// NewFleet returns a Fleet for a SidecarSet with one sidecar. The Fleet does not check the content initial,
// because new pods have this content from the start. The Fleet calls report for each violation.
func NewFleet(set, container, initial string, stages []FleetStage, report func(Violation)) *Fleet {
	return &Fleet{
		judge: judge{report: report}, set: set, container: container, initial: initial, stages: stages,
		contents: map[string]*fleetContent{}, away: map[string][]interval{},
	}
}

// Run observes the writes of the etcd of a cluster until ctx ends. etcd is the URL of etcd. If the watch ends
// before ctx, Run reports a violation.
func (f *Fleet) Run(ctx context.Context, cluster, etcd string) {
	f.run(ctx, etcd, func(e event) {
		switch object := e.object.(type) {
		case *v1alpha1.SidecarSet:
			if object.Name == f.set && len(object.Spec.Containers) > 0 {
				completed := object.Status.IsLastGood(object.Annotations[v1alpha1.HashAnnotation])
				f.observe(fleetEvent{at: e.seen, cluster: cluster, image: object.Spec.Containers[0].Image, completed: completed})
			}
		case *corev1.Pod:
			if image := imageOf(object, f.container); image != "" && !e.deleted {
				f.observe(fleetEvent{at: e.seen, cluster: cluster, image: image, pod: object.Name})
			}
		}
	})
}

func (f *Fleet) observe(e fleetEvent) {
	if text := f.next(e); text != "" {
		f.violated(Violation{Seen: e.at, Rule: "fleet", Set: f.set, Pod: e.cluster + "/" + e.pod, Text: text})
	}
}

// Away allows the fleet to continue without a cluster that is removed from the fleet or unreachable. The
// allowance begins after delay, and ends when back is called.
func (f *Fleet) Away(cluster string, delay time.Duration) (back func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := len(f.away[cluster])
	f.away[cluster] = append(f.away[cluster], interval{from: time.Now().Add(delay)})
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.away[cluster][i].until = time.Now()
	}
}

// Totals returns the number of rollouts in a cluster whose order was checked, and the number of violations so far.
func (f *Fleet) Totals() (checked, violations int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checked, f.violations
}

// fleetEvent is a write of a SidecarSet or of a pod in a cluster. image is the image of the sidecar. For a
// SidecarSet, completed is true if the rollout of the image has completed. For a pod, pod is the name of the
// pod.
type fleetEvent struct {
	at             time.Time
	cluster, image string
	completed      bool
	pod            string
}

// fleetContent is the observed state of content. began is the time of the first event with the content.
type fleetContent struct {
	began     time.Time
	completed map[string]time.Time
	// seen contains the clusters with a pod that has the content.
	seen map[string]bool
}

// next returns the violation of the event e, or an empty string.
func (f *Fleet) next(e fleetEvent) string {
	content := f.contents[e.image]
	switch {
	case e.image == f.initial:
		return ""
	case content == nil:
		content = &fleetContent{began: e.at, completed: map[string]time.Time{}, seen: map[string]bool{}}
		f.contents[e.image] = content
	}
	if e.completed && content.completed[e.cluster].IsZero() {
		content.completed[e.cluster] = e.at
	}
	if e.pod == "" || content.seen[e.cluster] {
		return ""
	}
	content.seen[e.cluster] = true
	f.checked++
	for i := range f.stages {
		if slices.Contains(f.stages[i].Clusters, e.cluster) {
			return ""
		}
		if cause := f.unfinished(&f.stages[i], content, e.at); cause != "" {
			return fmt.Sprintf("cluster %s got %s, and %s", e.cluster, e.image, cause)
		}
	}
	return "no stage has cluster " + e.cluster
}

// unfinished returns the reason why a stage has not ended, or an empty string. A cluster that was away after
// the content began may be skipped, or may complete late. At least one cluster of the stage must have
// completed.
func (f *Fleet) unfinished(stage *FleetStage, content *fleetContent, at time.Time) string {
	var reached, earliest time.Time
	for _, cluster := range stage.Clusters {
		completed := content.completed[cluster]
		if !completed.IsZero() && (earliest.IsZero() || completed.Before(earliest)) {
			earliest = completed
		}
		if f.wasAway(cluster, content.began, at) {
			continue
		}
		if completed.IsZero() {
			return "cluster " + cluster + " of an earlier stage had not completed it"
		}
		if completed.After(reached) {
			reached = completed
		}
	}
	if reached.IsZero() {
		reached = earliest
	}
	if reached.IsZero() {
		return fmt.Sprintf("none of the clusters %v of an earlier stage had completed it", stage.Clusters)
	}
	if since := at.Sub(reached); since < stage.Bake {
		return fmt.Sprintf("the clusters %v of an earlier stage had completed it %s before, with a bake time of %s", stage.Clusters, since, stage.Bake)
	}
	return ""
}

func (f *Fleet) wasAway(cluster string, from, at time.Time) bool {
	return slices.ContainsFunc(f.away[cluster], func(away interval) bool {
		return !away.from.After(at) && (away.until.IsZero() || away.until.After(from) && away.until.After(away.from))
	})
}
