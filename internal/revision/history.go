package revision

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/record"
)

// Sort orders revisions from the oldest to the newest.
func Sort(revisions []*appsv1.ControllerRevision) {
	slices.SortFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(
			cmp.Compare(a.Revision, b.Revision),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Name, b.Name),
		)
	})
}

// Find returns the newest of the sorted revisions with this content, or nil.
func Find(sorted []*appsv1.ControllerRevision, data []byte) *appsv1.ControllerRevision {
	for _, candidate := range slices.Backward(sorted) {
		if Equal(candidate.Data.Raw, data) {
			return candidate
		}
	}
	return nil
}

// NewestOther returns the newest of the sorted revisions with other content than data, or nil.
func NewestOther(sorted []*appsv1.ControllerRevision, data []byte) *appsv1.ControllerRevision {
	for _, candidate := range slices.Backward(sorted) {
		if !Equal(candidate.Data.Raw, data) {
			return candidate
		}
	}
	return nil
}

// NumberFor returns the number that makes a revision the newest of the sorted revisions. The newest revision
// keeps its number. revision is nil for a new revision.
func NumberFor(revision *appsv1.ControllerRevision, sorted []*appsv1.ControllerRevision) int64 {
	if len(sorted) == 0 {
		return 1
	}
	newest := sorted[len(sorted)-1]
	if revision != nil && newest.Name == revision.Name {
		return revision.Revision
	}
	return newest.Revision + 1
}

// Expendable returns the revisions that exceed the history limit, the oldest first. The result never contains
// the revision with the name current, revisions of pods, the revision that injection is pinned to, or the
// last two good revisions. New pods of a rollout in steps may get the last good revision, and a fleet may roll
// the last good revision back (SPEC §6.6, §11.5, §12.4).
func Expendable(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision, current string, pods []*corev1.Pod) []*appsv1.ControllerRevision {
	excess := len(sorted) - historyLimit(set)
	if excess <= 0 {
		return nil
	}
	pinned, _ := FindPinned(set, sorted)
	used, good := usedBy(pods, set.Name, sorted), lastGood(set, 2)
	kept := func(candidate *appsv1.ControllerRevision) bool {
		return candidate.Name == current || candidate == pinned || used(candidate) || slices.Contains(good, candidate.Name)
	}
	var expendable []*appsv1.ControllerRevision
	for _, candidate := range sorted {
		if len(expendable) == excess {
			break
		}
		if !kept(candidate) {
			expendable = append(expendable, candidate)
		}
	}
	return expendable
}

// lastGood returns the names of at most limit revisions whose rollout has ended, the newest first.
func lastGood(set *v1alpha1.SidecarSet, limit int) (names []string) {
	for _, good := range set.Status.GoodRevisions {
		if good.ResourceVersion != "" && len(names) < limit {
			names = append(names, good.Revision)
		}
	}
	return names
}

func historyLimit(set *v1alpha1.SidecarSet) int {
	if set.Spec.RevisionHistoryLimit == nil {
		return defaults.HistoryLimit
	}
	return max(int(*set.Spec.RevisionHistoryLimit), 1)
}

// usedBy returns a function that reports whether one of the pods has the given revision.
func usedBy(pods []*corev1.Pod, set string, all []*appsv1.ControllerRevision) func(*appsv1.ControllerRevision) bool {
	hashOf := map[string]string{}
	for _, revision := range all {
		hashOf[revision.Name] = revision.Annotations[v1alpha1.HashAnnotation]
	}
	// hashes contains the hash of each pod whose entry names no revision with this hash. The webhook may compute
	// the name of a revision before the operator creates the revision with another name.
	names, hashes := map[string]bool{}, map[string]bool{}
	for i := range pods {
		entries, err := record.Hashes(pods[i].Annotations)
		if err != nil {
			continue
		}
		entry := entries[set]
		names[entry.ControllerRevision] = true
		if entry.Hash != "" && entry.Hash != hashOf[entry.ControllerRevision] {
			hashes[entry.Hash] = true
		}
	}
	return func(revision *appsv1.ControllerRevision) bool {
		return names[revision.Name] || hashes[hashOf[revision.Name]]
	}
}
