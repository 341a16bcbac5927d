package validation

import (
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject/expression"
)

func validateResources(c *v1alpha1.SidecarContainer, at *field.Path) field.ErrorList {
	policy := c.ResourcesPolicy
	if policy == nil {
		return nil
	}
	var errs field.ErrorList
	if len(c.Resources.Limits)+len(c.Resources.Requests)+len(c.Resources.Claims) > 0 {
		errs = append(errs, field.Forbidden(at.Child("resources"), "resourcesPolicy computes the resources; remove one of the two"))
	}
	at = at.Child("resourcesPolicy")
	errs = append(errs, oneOf(policy.TargetContainersMode, at.Child("targetContainersMode"),
		v1alpha1.TargetContainersModeSum, v1alpha1.TargetContainersModeMax)...)
	if _, err := regexp.Compile(policy.TargetContainersNameRegex); err != nil {
		errs = append(errs, field.Invalid(at.Child("targetContainersNameRegex"), policy.TargetContainersNameRegex, err.Error()))
	}
	at = at.Child("resourcesExpr")
	if noExpression(&policy.ResourcesExpr) {
		errs = append(errs, field.Required(at, "write an expression for cpu or memory, under limits or requests, or remove resourcesPolicy"))
	}
	if limits := policy.ResourcesExpr.Limits; limits != nil {
		errs = append(errs, validateExpressions(limits.CPU, limits.Memory, at.Child("limits"))...)
	}
	if requests := policy.ResourcesExpr.Requests; requests != nil {
		errs = append(errs, validateExpressions(requests.CPU, requests.Memory, at.Child("requests"))...)
	}
	return errs
}

func validateExpressions(cpu, memory string, at *field.Path) field.ErrorList {
	return append(validateExpression(cpu, "cpu", at), validateExpression(memory, "memory", at)...)
}

func validateExpression(text, variable string, at *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	if _, err := expression.Parse(text, variable); err != nil {
		// The outer error and field.Invalid both contain the text, so only the inner error is used.
		return field.ErrorList{field.Invalid(at.Child(variable), text, errors.Unwrap(err).Error())}
	}
	return nil
}

func noExpression(expr *v1alpha1.ResourcesExpr) bool {
	limits, requests := expr.Limits, expr.Requests
	return (limits == nil || limits.CPU == "" && limits.Memory == "") && (requests == nil || requests.CPU == "" && requests.Memory == "")
}
