// Package validation contains the rules and the messages for the validation of SidecarSets (SPEC
// §1, §5).
package validation

import (
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9-]{1,63}$`)

// Validate returns the errors of a defaulted SidecarSet that do not depend on other objects (SPEC
// §5). Ratchet compares the SidecarSet with other objects.
func Validate(set *v1alpha1.SidecarSet) field.ErrorList {
	at := field.NewPath("spec")
	return slices.Concat(
		validateName(set),
		validateScope(set, at),
		validateNotEmpty(set, at),
		validateVolumes(set, at),
		validateSidecars(set, at),
		validateHistoryLimit(set, at),
		validatePatches(set, at),
		validatePinnedRevision(set, at),
		validateUpdateStrategy(set, at),
	)
}

func validateName(set *v1alpha1.SidecarSet) field.ErrorList {
	if namePattern.MatchString(set.Name) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), set.Name,
		"use letters, digits and '-', at most 63: the name becomes part of label values")}
}

func validateNotEmpty(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	if len(set.Spec.Containers)+len(set.Spec.InitContainers) > 0 {
		return nil
	}
	return field.ErrorList{field.Required(at.Child("containers"), "name at least one container or init container to inject")}
}

func validateHistoryLimit(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	if limit := set.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		return field.ErrorList{field.Invalid(at.Child("revisionHistoryLimit"), *limit, "write 0 or more; one revision is kept in any case")}
	}
	return nil
}

func validateScope(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	spec := &set.Spec
	errs := validateSelector(spec.Selector, at.Child("selector"))
	if spec.Selector == nil {
		errs = append(errs, field.Required(at.Child("selector"), "say which pods get the sidecars"))
	} else if match.MatchesNothing(spec.Selector) {
		errs = append(errs, field.Required(at.Child("selector"), "an empty selector matches no pod; add matchLabels or matchExpressions"))
	}
	if spec.Namespace != "" {
		for _, problem := range validation.IsDNS1123Label(spec.Namespace) {
			errs = append(errs, field.Invalid(at.Child("namespace"), spec.Namespace, problem))
		}
	}
	return append(errs, validateSelector(spec.NamespaceSelector, at.Child("namespaceSelector"))...)
}

func validateSelector(selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)
	for _, err := range errs {
		if err.Detail == "not a valid selector operator" {
			err.Detail += "; use In, NotIn, Exists or DoesNotExist"
		}
	}
	return errs
}

// advised sets a remedy as the detail of an error.
func advised(err *field.Error, remedy string) *field.Error {
	err.Detail = remedy
	return err
}

// oneOf rejects values outside an enum. The error names the allowed values.
func oneOf[T ~string](value T, at *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}
