package validation

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
)

// Ratchet validates a new SidecarSet as a whole, and the changes of an update (SPEC §5), like
// the validation ratcheting of Kubernetes. Older rules accepted the stored fields, which must
// not prevent a pause.
type Ratchet struct {
	// old is nil at creation. Both are defaulted, so that a new default is not a change.
	set, old *v1alpha1.SidecarSet
	// found are the errors of set, and before the errors of old.
	found, before field.ErrorList
}

// NewRatchet begins with the errors of a SidecarSet by itself. stored is nil at creation.
func NewRatchet(set, stored *v1alpha1.SidecarSet) *Ratchet {
	r := &Ratchet{set: defaulted(set)}
	r.found = Validate(r.set)
	if stored != nil {
		r.old = defaulted(stored)
		r.before = Validate(r.old)
		r.found = append(r.found, ValidateUpdate(r.set, r.old)...)
	}
	return r
}

func defaulted(set *v1alpha1.SidecarSet) *v1alpha1.SidecarSet {
	set = set.DeepCopy()
	defaults.Write(set)
	return set
}

// NeedsOthers reports whether Conflicts can find errors.
func (r *Ratchet) NeedsOthers() bool {
	if r.old == nil {
		return true
	}
	set, old := &r.set.Spec, &r.old.Spec
	return !sameScope(set, old) || differ(set.Containers, old.Containers) || differ(set.InitContainers, old.InitContainers) ||
		differ(set.Volumes, old.Volumes) || differ(set.PatchPodMetadata, old.PatchPodMetadata) || r.NeedsRevisions()
}

// PinnedAmong returns the SidecarSets whose revisions Conflicts needs: SidecarSets with pinned
// injection that can match the same pods, including this one.
func (r *Ratchet) PinnedAmong(others []v1alpha1.SidecarSet) []string {
	var names []string
	if isPinned(r.set) || r.old != nil && isPinned(r.old) {
		names = append(names, r.set.Name)
	}
	for i := range others {
		if other := &others[i]; other.Name != r.set.Name && isPinned(other) && Overlap(&r.set.Spec, &other.Spec) {
			names = append(names, other.Name)
		}
	}
	return names
}

// Conflicts adds conflicts with other SidecarSets. Former conflicts are accepted only while
// the scope stays the same. revisions are the revisions of PinnedAmong.
func (r *Ratchet) Conflicts(others []v1alpha1.SidecarSet, revisions []appsv1.ControllerRevision) {
	r.found = append(r.found, ValidateConflicts(r.set, others, revisions)...)
	if r.old != nil && sameScope(&r.set.Spec, &r.old.Spec) {
		r.before = append(r.before, ValidateConflicts(r.old, others, revisions)...)
	}
}

// NeedsWhitelist reports whether Metadata can find errors.
func (r *Ratchet) NeedsWhitelist() bool {
	patches := r.set.Spec.PatchPodMetadata
	return len(patches) > 0 && (r.old == nil || differ(patches, r.old.Spec.PatchPodMetadata))
}

// Metadata adds errors about the whitelist.
func (r *Ratchet) Metadata(whitelist *Whitelist) {
	r.found = append(r.found, ValidateMetadata(r.set, whitelist)...)
	if r.old != nil {
		// A change of labels is always accepted, also if a rule of the whitelist selects
		// by it.
		relabelled := r.old.DeepCopy()
		relabelled.Labels = r.set.Labels
		r.before = append(r.before, ValidateMetadata(relabelled, whitelist)...)
	}
}

// NeedsRevisions reports whether Pinned can find errors.
func (r *Ratchet) NeedsRevisions() bool {
	pin := r.set.Spec.InjectionStrategy.Revision
	return pin != nil && (r.old == nil || differ(pin, r.old.Spec.InjectionStrategy.Revision))
}

// Pinned adds an error if injection is pinned to a revision that is not listed.
func (r *Ratchet) Pinned(listed []appsv1.ControllerRevision) {
	r.found = append(r.found, ValidatePinned(r.set, listed)...)
}

// Rejected returns the causes to reject the SidecarSet, so far.
func (r *Ratchet) Rejected() []metav1.StatusCause {
	return r.Introduced(Causes(r.found), Causes(r.before))
}

// Causes converts errors to the causes of a Status.
func Causes(errs field.ErrorList) []metav1.StatusCause {
	causes := make([]metav1.StatusCause, len(errs))
	for i, err := range errs {
		causes[i] = metav1.StatusCause{Type: metav1.CauseType(err.Type), Field: err.Field, Message: err.ErrorBody()}
	}
	return causes
}

func sameScope(a, b *v1alpha1.SidecarSetSpec) bool {
	return a.Namespace == b.Namespace && !differ(a.Selector, b.Selector) && !differ(a.NamespaceSelector, b.NamespaceSelector)
}

func differ[T any](a, b T) bool { return !equality.Semantic.DeepEqual(a, b) }
