package validation

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// ValidateUpdate returns errors about changes that cannot be applied to running pods (SPEC §5). Such a change
// adds or renames a container or a native sidecar, or switches between one container and twins. Removals and
// changes of ordinary init containers are accepted.
func ValidateUpdate(set, old *v1alpha1.SidecarSet) field.ErrorList {
	at := field.NewPath("spec")
	return append(
		validateContainersUpdate(set.Spec.Containers, old.Spec.Containers, at.Child("containers")),
		validateNativesUpdate(set.Spec.InitContainers, old.Spec.InitContainers, at.Child("initContainers"))...)
}

func validateContainersUpdate(containers, old []v1alpha1.SidecarContainer, at *field.Path) field.ErrorList {
	before := map[string]v1alpha1.SidecarContainerUpgradeType{}
	for i := range old {
		before[old[i].Name] = old[i].UpgradeStrategy.UpgradeType
	}
	const hot = v1alpha1.SidecarContainerHotUpgrade
	var errs field.ErrorList
	for i := range containers {
		c := &containers[i]
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

func validateNativesUpdate(initContainers, old []v1alpha1.SidecarContainer, at *field.Path) field.ErrorList {
	before := sets.New[string]()
	for i := range old {
		if revision.IsNativeSidecar(&old[i].Container) {
			before.Insert(old[i].Name)
		}
	}
	var errs field.ErrorList
	for i := range initContainers {
		if c := &initContainers[i].Container; revision.IsNativeSidecar(c) && !before.Has(c.Name) {
			errs = append(errs, field.Forbidden(at.Index(i).Child("name"),
				"native sidecar "+c.Name+" is new, and running pods cannot gain one; put it into a SidecarSet of its own"))
		}
	}
	return errs
}
