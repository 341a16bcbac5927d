package validation

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// content is the current content of a SidecarSet, or the content of its pinned revision. New pods can get
// either content.
type content struct {
	set  string
	spec *v1alpha1.SidecarSetSpec
	// pinned is the name of the content's revision. The name is empty for the current content.
	pinned string
}

// contentsOf returns the current content and the content of the pinned revision. A revision that is missing or
// cannot be read is omitted, because no pod gets its content.
func contentsOf(set *v1alpha1.SidecarSet, revisions []appsv1.ControllerRevision) []content {
	all := []content{{set: set.Name, spec: &set.Spec}}
	if !isPinned(set) {
		return all
	}
	found, err := revision.FindPinned(set, revision.Of(set, revisions))
	if err != nil {
		return all
	}
	restored := set.DeepCopy()
	if err := revision.Restore(found.Data.Raw, &restored.Spec); err != nil {
		return all
	}
	return append(all, content{set: set.Name, spec: &defaulted(restored).Spec, pinned: found.Name})
}

func isPinned(set *v1alpha1.SidecarSet) bool {
	name, version := revision.Pin(set)
	return name != "" || version != ""
}

func (c content) String() string {
	if c.pinned == "" {
		return "SidecarSet " + c.set
	}
	return fmt.Sprintf("SidecarSet %s, whose injection is pinned to revision %s,", c.set, c.pinned)
}

// report returns the error about the conflict found between the content and another content.
func (c content) report(found conflict) *field.Error {
	if c.pinned == "" {
		return field.Invalid(found.at, found.value, found.detail)
	}
	return field.Invalid(field.NewPath("spec", "injectionStrategy", "revision"), c.pinned, found.subject+" of that revision: "+found.detail)
}
