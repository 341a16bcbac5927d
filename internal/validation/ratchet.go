package validation

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
)

// Ratchet validates a new SidecarSet as a whole, but only the changes of an update (SPEC §5). The validation
// ratcheting of Kubernetes works in the same way. Stored fields may be valid only under older rules. If
// Ratchet rejected stored fields, a client could not pause the SidecarSet.
type Ratchet struct {
	// set is the new SidecarSet. old is the stored SidecarSet, or nil at creation. set and old have all
	// defaults, so that a new default is not a change.
	set, old *v1alpha1.SidecarSet
	// found contains the errors of set. before contains the errors of old.
	found, before field.ErrorList
}

// NewRatchet returns a Ratchet with the errors of a SidecarSet that do not depend on other
// objects. stored is nil at creation.
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

// NeedsOthers reports whether Conflicts can find new errors. Otherwise, the caller need not call Conflicts.
func (r *Ratchet) NeedsOthers() bool {
	if r.old == nil {
		return true
	}
	set, old := &r.set.Spec, &r.old.Spec
	return !sameScope(set, old) || differ(set.Containers, old.Containers) || differ(set.InitContainers, old.InitContainers) ||
		differ(set.Volumes, old.Volumes) || differ(set.PatchPodMetadata, old.PatchPodMetadata) || r.NeedsRevisions()
}

// PinnedAmong returns the names of the SidecarSets whose revisions Conflicts needs. The injection of these
// SidecarSets is pinned, and these SidecarSets can match the same pods. The result may include the validated
// SidecarSet.
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

// Conflicts adds conflicts with other SidecarSets. Conflicts of the stored SidecarSet are accepted only if the
// scope stays the same. revisions must contain the revisions of the SidecarSets that PinnedAmong returns.
func (r *Ratchet) Conflicts(others []v1alpha1.SidecarSet, revisions []appsv1.ControllerRevision) {
	r.found = append(r.found, ValidateConflicts(r.set, others, revisions)...)
	if r.old != nil && sameScope(&r.set.Spec, &r.old.Spec) {
		// r.before contains the conflicts of each content, because an update may repair the current content while
		// the pinned revision keeps the same conflict.
		r.before = append(r.before, validateConflicts(r.old, others, revisions, true)...)
	}
}

// NeedsWhitelist reports whether Metadata can find new errors. Otherwise, the caller need not call Metadata.
func (r *Ratchet) NeedsWhitelist() bool {
	patches := r.set.Spec.PatchPodMetadata
	return len(patches) > 0 && (r.old == nil || differ(patches, r.old.Spec.PatchPodMetadata))
}

// Metadata adds errors about annotations that the whitelist does not allow.
func (r *Ratchet) Metadata(whitelist *Whitelist) {
	r.found = append(r.found, ValidateMetadata(r.set, whitelist)...)
	if r.old != nil {
		// A change of labels is always accepted, even if a rule of the whitelist selects
		// SidecarSets by these labels.
		relabelled := r.old.DeepCopy()
		relabelled.Labels = r.set.Labels
		r.before = append(r.before, ValidateMetadata(relabelled, whitelist)...)
	}
}

// NeedsRevisions reports whether Pinned can find new errors. Otherwise, the caller need not call Pinned.
func (r *Ratchet) NeedsRevisions() bool {
	pin := r.set.Spec.InjectionStrategy.Revision
	return pin != nil && (r.old == nil || differ(pin, r.old.Spec.InjectionStrategy.Revision))
}

// Pinned adds an error if injection is pinned to a revision that is not listed.
func (r *Ratchet) Pinned(listed []appsv1.ControllerRevision) {
	r.found = append(r.found, ValidatePinned(r.set, listed)...)
	if r.old != nil {
		r.before = append(r.before, ValidatePinned(r.old, listed)...)
	}
}

// Rejected returns the causes, among the errors found so far, for which the webhook rejects the SidecarSet.
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
