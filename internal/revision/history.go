package revision

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
)

// DefaultHistoryLimit is how many revisions are kept when a set names no number (SPEC §1).
const DefaultHistoryLimit = 10

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

// Find returns the newest of the sorted revisions that records this content,
// or nil.
func Find(sorted []*appsv1.ControllerRevision, data []byte) *appsv1.ControllerRevision {
	for _, candidate := range slices.Backward(sorted) {
		if Equal(candidate.Data.Raw, data) {
			return candidate
		}
	}
	return nil
}

// NumberFor is the number that makes a revision the newest of the sorted ones:
// its own if it is that already. A nil revision is one yet to be created.
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

// Expendable picks the oldest of the sorted revisions that the history limit
// no longer keeps: never the current one, one that a pod was made from, or one
// that is pinned for injection (SPEC §6).
func Expendable(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision, current string, pods []*corev1.Pod) []*appsv1.ControllerRevision {
	excess := len(sorted) - historyLimit(set)
	if excess <= 0 {
		return nil
	}
	// A pin to nothing keeps nothing.
	pinned, _ := FindPinned(set, sorted)
	used := usedBy(pods, set.Name, sorted)
	var expendable []*appsv1.ControllerRevision
	for _, candidate := range sorted {
		if len(expendable) == excess {
			break
		}
		if candidate.Name != current && candidate != pinned && !used.holds(candidate) {
			expendable = append(expendable, candidate)
		}
	}
	return expendable
}

func historyLimit(set *v1alpha1.SidecarSet) int {
	if set.Spec.RevisionHistoryLimit == nil {
		return DefaultHistoryLimit
	}
	return max(int(*set.Spec.RevisionHistoryLimit), 1)
}

// usage is what pods say they were made from.
type usage struct {
	names map[string]bool
	// hashes come from pods whose entry names no revision of their hash: the name may have
	// been told before the revision was made, and it got another.
	hashes map[string]bool
}

func usedBy(pods []*corev1.Pod, set string, all []*appsv1.ControllerRevision) usage {
	hashOf := map[string]string{}
	for _, revision := range all {
		hashOf[revision.Name] = revision.Annotations[v1alpha1.HashAnnotation]
	}
	used := usage{names: map[string]bool{}, hashes: map[string]bool{}}
	for i := range pods {
		// Annotations that cannot be read name no revision.
		entries, err := record.Hashes(pods[i].Annotations)
		if err != nil {
			continue
		}
		entry := entries[set]
		hash, known := hashOf[entry.ControllerRevision]
		if known {
			used.names[entry.ControllerRevision] = true
		}
		if entry.Hash != "" && entry.Hash != hash {
			used.hashes[entry.Hash] = true
		}
	}
	return used
}

func (u usage) holds(revision *appsv1.ControllerRevision) bool {
	return u.names[revision.Name] || u.hashes[revision.Annotations[v1alpha1.HashAnnotation]]
}
