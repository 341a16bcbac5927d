package validation

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

const maxWeight = 100

var percentPattern = regexp.MustCompile(`^[0-9]{1,3}%$`)

func validatePinnedRevision(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	pinned := set.Spec.InjectionStrategy.Revision
	if pinned == nil {
		return nil
	}
	at = at.Child("injectionStrategy", "revision")
	errs := oneOf(pinned.Policy, at.Child("policy"),
		v1alpha1.AlwaysSidecarSetInjectRevisionPolicy, v1alpha1.PartialSidecarSetInjectRevisionPolicy)
	if name, version := revision.Pin(set); name == "" && version == "" {
		errs = append(errs, field.Required(at, "give a revisionName or a customVersion"))
	}
	return errs
}

func validateUpdateStrategy(set *v1alpha1.SidecarSet, at *field.Path) field.ErrorList {
	strategy, at := &set.Spec.UpdateStrategy, at.Child("updateStrategy")
	errs := oneOf(strategy.Type, at.Child("type"),
		v1alpha1.RollingUpdateSidecarSetStrategyType, v1alpha1.NotUpdateSidecarSetStrategyType)
	errs = append(errs, validateShare(strategy.Partition, at.Child("partition"))...)
	errs = append(errs, validateShare(strategy.MaxUnavailable, at.Child("maxUnavailable"))...)
	errs = append(errs, validateSelector(strategy.Selector, at.Child("selector"))...)
	if strategy.Selector != nil && keepsPods(strategy.Partition) {
		errs = append(errs, field.Forbidden(at.Child("partition"), "does not apply to an update with a selector; remove one of the two"))
	}
	errs = append(errs, validatePriority(strategy.PriorityStrategy, at.Child("priorityStrategy"))...)
	return append(errs, validateScatter(strategy.ScatterStrategy, at.Child("scatterStrategy"))...)
}

// keepsPods reports whether the partition is not zero. Zero is the default.
func keepsPods(partition *intstr.IntOrString) bool {
	return partition != nil && !isZero(partition)
}

// isZero reports whether a valid number or percentage is zero, such as 0 or "00%".
func isZero(share *intstr.IntOrString) bool { return strings.Trim(share.String(), "0%") == "" }

// validateShare accepts numbers of 0 or more, and percentages from 0% to 100%.
func validateShare(share *intstr.IntOrString, at *field.Path) field.ErrorList {
	if share == nil {
		return nil
	}
	if share.Type == intstr.Int {
		if share.IntVal < 0 {
			return field.ErrorList{field.Invalid(at, share.IntVal, "write 0 or more, or a percentage")}
		}
		return nil
	}
	if !percentPattern.MatchString(share.StrVal) {
		return field.ErrorList{field.Invalid(at, share.StrVal, `write a number without quotes (5) or a percentage ("5%")`)}
	}
	if percent, err := strconv.Atoi(strings.TrimSuffix(share.StrVal, "%")); err != nil || percent > 100 {
		return field.ErrorList{field.Invalid(at, share.StrVal, "write 0% to 100%")}
	}
	return nil
}

func validatePriority(priority *v1alpha1.UpdatePriorityStrategy, at *field.Path) field.ErrorList {
	if priority == nil {
		return nil
	}
	var errs field.ErrorList
	if len(priority.OrderPriority) > 0 && len(priority.WeightPriority) > 0 {
		errs = append(errs, field.Forbidden(at, "orderPriority and weightPriority exclude each other; remove one of the two"))
	}
	for i, term := range priority.OrderPriority {
		if term.OrderedKey == "" {
			errs = append(errs, field.Required(at.Child("orderPriority").Index(i).Child("orderedKey"), "name a label of the pods"))
		}
	}
	for i := range priority.WeightPriority {
		term, path := &priority.WeightPriority[i], at.Child("weightPriority").Index(i)
		if term.Weight < 0 || term.Weight > maxWeight {
			errs = append(errs, field.Invalid(path.Child("weight"), term.Weight, fmt.Sprintf("must be 0 to %d", maxWeight)))
		}
		errs = append(errs, validateSelector(&term.MatchSelector, path.Child("matchSelector"))...)
	}
	return errs
}

func validateScatter(scatter v1alpha1.UpdateScatterStrategy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[v1alpha1.UpdateScatterTerm]()
	for i, term := range scatter {
		if term.Key == "" {
			errs = append(errs, field.Required(at.Index(i).Child("key"), "name a label of the pods"))
		}
		if seen.Has(term) {
			errs = append(errs, advised(field.Duplicate(at.Index(i), term.Key+"="+term.Value), "spread each label once"))
		}
		seen.Insert(term)
	}
	return errs
}
