package inject

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject/expression"
)

// resourcesPolicy computes the resources of a sidecar from the app containers (SPEC §4.7).
type resourcesPolicy struct {
	mode     v1alpha1.TargetContainersModeType
	targets  *regexp.Regexp
	limits   []formula
	requests []formula
}

// formula computes one resource.
type formula struct {
	resource corev1.ResourceName
	*expression.Expression
}

var (
	errNegative = errors.New("the result is below zero")
	errTooLarge = errors.New("the result does not fit a quantity")
)

// maxExponent limits the exponents of quantities. The API server accepts a quantity such as 1e100000000, whose
// exact value has too many digits to compute. A result is an int64, which has at most 19 digits.
const maxExponent = 64

func compileResources(policy *v1alpha1.ResourcesPolicy) (*resourcesPolicy, error) {
	targets, err := regexp.Compile(policy.TargetContainersNameRegex)
	if err != nil {
		return nil, fmt.Errorf("resourcesPolicy.targetContainersNameRegex: %w", err)
	}
	compiled := &resourcesPolicy{mode: policy.TargetContainersMode, targets: targets}
	if limits := policy.ResourcesExpr.Limits; limits != nil {
		if compiled.limits, err = formulas(limits.CPU, limits.Memory); err != nil {
			return nil, fmt.Errorf("resourcesPolicy.resourcesExpr.limits: %w", err)
		}
	}
	if requests := policy.ResourcesExpr.Requests; requests != nil {
		if compiled.requests, err = formulas(requests.CPU, requests.Memory); err != nil {
			return nil, fmt.Errorf("resourcesPolicy.resourcesExpr.requests: %w", err)
		}
	}
	return compiled, nil
}

func formulas(cpu, memory string) ([]formula, error) {
	var all []formula
	for _, wanted := range []struct {
		name corev1.ResourceName
		text string
	}{{corev1.ResourceCPU, cpu}, {corev1.ResourceMemory, memory}} {
		if wanted.text == "" {
			continue
		}
		parsed, err := expression.Parse(wanted.text, string(wanted.name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", wanted.name, err)
		}
		all = append(all, formula{wanted.name, parsed})
	}
	return all, nil
}

func (p *resourcesPolicy) compute(own app) (computed corev1.ResourceRequirements, err error) {
	var targets []*corev1.Container
	for _, c := range slices.Concat(own.containers, own.natives) {
		if p.targets.MatchString(c.Name) {
			targets = append(targets, c)
		}
	}
	if len(targets) == 0 {
		return computed, fmt.Errorf("no container of the pod has a name that matches %q; change targetContainersNameRegex", p.targets)
	}
	computed.Limits, err = p.list(p.limits, targets, true, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits })
	if err != nil {
		return computed, fmt.Errorf("limits: %w", err)
	}
	computed.Requests, err = p.list(p.requests, targets, false, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests })
	if err != nil {
		return computed, fmt.Errorf("requests: %w", err)
	}
	return computed, nil
}

// list returns the results of the formulas by resource. If limits is set, and a target has no limit for a
// resource, the result has no limit for this resource.
func (p *resourcesPolicy) list(formulas []formula, targets []*corev1.Container, limits bool, of func(*corev1.Container) corev1.ResourceList) (corev1.ResourceList, error) {
	var computed corev1.ResourceList
	for _, f := range formulas {
		total, complete, err := p.aggregate(f.resource, targets, limits, of)
		if err != nil {
			return nil, err
		}
		if limits && !complete {
			continue
		}
		result, err := f.Evaluate(total)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.resource, err)
		}
		quantity, err := rounded(f.resource, result)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.resource, err)
		}
		if computed == nil {
			computed = corev1.ResourceList{}
		}
		computed[f.resource] = quantity
	}
	return computed, nil
}

// aggregate returns the sum or the maximum of the quantities of the targets. A missing quantity counts as zero,
// and complete is then false. If limits is set, a quantity of zero counts as missing, because a limit of zero
// means that there is no limit. aggregate returns an error for a quantity beyond maxExponent.
func (p *resourcesPolicy) aggregate(name corev1.ResourceName, targets []*corev1.Container, limits bool,
	list func(*corev1.Container) corev1.ResourceList,
) (total *big.Rat, complete bool, err error) {
	total, complete = new(big.Rat), true
	for _, target := range targets {
		quantity, found := list(target)[name]
		if !found || limits && quantity.IsZero() {
			complete = false
			continue
		}
		value, err := exact(quantity)
		if err != nil {
			return nil, false, fmt.Errorf("%s of container %s: %w", name, target.Name, err)
		}
		switch {
		case p.mode == v1alpha1.TargetContainersModeSum:
			total.Add(total, value)
		case value.Cmp(total) > 0:
			total = value
		}
	}
	return total, complete, nil
}

func exact(quantity resource.Quantity) (*big.Rat, error) {
	// AsDec changes quantity, which is a copy.
	decimal := quantity.AsDec()
	exponent := -int64(decimal.Scale())
	if exponent > maxExponent || exponent < -maxExponent {
		return nil, errTooLarge
	}
	value := new(big.Rat).SetInt(decimal.UnscaledBig())
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(exponent, -exponent)), nil))
	if exponent < 0 {
		return value.Quo(value, power), nil
	}
	return value.Mul(value, power), nil
}

// rounded rounds value up to whole millicores of CPU or whole bytes of memory (SPEC §4.7). rounded returns an
// error for a negative value, and for a result that does not fit an int64.
func rounded(name corev1.ResourceName, value *big.Rat) (resource.Quantity, error) {
	if value.Sign() < 0 {
		return resource.Quantity{}, errNegative
	}
	units := value
	if name == corev1.ResourceCPU {
		units = new(big.Rat).Mul(value, big.NewRat(1000, 1))
	}
	whole, rest := new(big.Int).QuoRem(units.Num(), units.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return resource.Quantity{}, errTooLarge
	}
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(whole.Int64(), resource.DecimalSI), nil
	}
	return *resource.NewQuantity(whole.Int64(), resource.BinarySI), nil
}
