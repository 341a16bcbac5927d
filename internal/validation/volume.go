package validation

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func validateVolumes(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	volumes, at := set.Spec.Volumes, at.Child("volumes")
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range volumes {
		name, path := volumes[i].Name, at.Index(i).Child("name")
		if name == "" {
			errs = append(errs, field.Required(path, "name the volume"))
			continue
		}
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(path, name, problem))
		}
		if seen.Has(name) {
			errs = append(errs, advised(field.Duplicate(path, name), "rename one of the volumes"))
		}
		seen.Insert(name)
	}
	return errs
}
