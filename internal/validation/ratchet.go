package validation

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Ratchet validates a SidecarSet at its creation as a whole, and later by what an
// update changes (SPEC §5), like the validation ratcheting of Kubernetes: what is
// stored was accepted under older rules, and must never keep a set from being paused.
type Ratchet struct {
	// old is nil at the creation. Both are defaulted: what a default changes,
	// nobody has changed.
	set, old *v1alpha1.SidecarSet
	// found holds what is wrong with the set, before what was with old.
	found, before field.ErrorList
}

// NewRatchet begins with what a set says by itself. stored is nil at its creation.
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
	Default(set)
	return set
}

// NeedsOthers reports whether Conflicts could find something.
func (r *Ratchet) NeedsOthers() bool {
	if r.old == nil {
		return true
	}
	set, old := &r.set.Spec, &r.old.Spec
	return !sameScope(set, old) || differ(set.Containers, old.Containers) || differ(set.InitContainers, old.InitContainers) ||
		differ(set.Volumes, old.Volumes) || differ(set.PatchPodMetadata, old.PatchPodMetadata)
}

// Conflicts looks for conflicts with other sets. Those there were stay only while
// the set selects the same pods as before.
func (r *Ratchet) Conflicts(others []v1alpha1.SidecarSet) {
	r.found = append(r.found, ValidateConflicts(r.set, others)...)
	if r.old != nil && sameScope(&r.set.Spec, &r.old.Spec) {
		r.before = append(r.before, ValidateConflicts(r.old, others)...)
	}
}

// NeedsWhitelist reports whether Metadata could find something.
func (r *Ratchet) NeedsWhitelist() bool {
	patches := r.set.Spec.PatchPodMetadata
	return len(patches) > 0 && (r.old == nil || differ(patches, r.old.Spec.PatchPodMetadata))
}

// Metadata holds the set against the whitelist.
func (r *Ratchet) Metadata(whitelist *Whitelist) {
	r.found = append(r.found, ValidateMetadata(r.set, whitelist)...)
	if r.old != nil {
		// A label always goes through, whatever a rule makes of it.
		relabelled := r.old.DeepCopy()
		relabelled.Labels = r.set.Labels
		r.before = append(r.before, ValidateMetadata(relabelled, whitelist)...)
	}
}

// NeedsRevisions reports whether Pinned could find something.
func (r *Ratchet) NeedsRevisions() bool {
	pin := r.set.Spec.InjectionStrategy.Revision
	return pin != nil && (r.old == nil || differ(pin, r.old.Spec.InjectionStrategy.Revision))
}

// Pinned looks for the revision that injection is pinned to, among those that
// bear the set's name.
func (r *Ratchet) Pinned(listed []appsv1.ControllerRevision) {
	r.found = append(r.found, ValidatePinned(r.set, listed)...)
}

// Refused is what the set is refused for, so far.
func (r *Ratchet) Refused() []metav1.StatusCause {
	return r.Introduced(Causes(r.found), Causes(r.before))
}

// Causes are errors in the form that a Status holds.
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
