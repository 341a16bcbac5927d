package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// ValidateUpdate returns what may not change from old to new (SPEC §5): running
// pods cannot gain or rename a container, nor turn one into twins. Containers
// may be removed.
func ValidateUpdate(set, old *v1alpha1.SidecarSet) field.ErrorList {
	at := field.NewPath("spec", "containers")
	before := map[string]v1alpha1.SidecarContainerUpgradeType{}
	for i := range old.Spec.Containers {
		before[old.Spec.Containers[i].Name] = old.Spec.Containers[i].UpgradeStrategy.UpgradeType
	}
	const hot = v1alpha1.SidecarContainerHotUpgrade
	var errs field.ErrorList
	for i := range set.Spec.Containers {
		c := &set.Spec.Containers[i]
		kind, known := before[c.Name]
		switch {
		case !known:
			errs = append(errs, field.Forbidden(at.Index(i).Child("name"),
				"container "+c.Name+" is new, and running pods cannot gain one; put it into a SidecarSet of its own"))
		case (kind == hot) != (c.UpgradeStrategy.UpgradeType == hot):
			errs = append(errs, field.Forbidden(at.Index(i).Child("upgradeStrategy", "upgradeType"),
				"cannot change from "+string(kind)+"; create another SidecarSet for it"))
		}
	}
	return errs
}
