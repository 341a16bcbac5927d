package match

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// ConditionName is the name of the match condition that selects the pods of the SidecarSets (SPEC §4.16).
const ConditionName = "selected-by-a-sidecarset"

// These are the limits of the CEL expression of a Condition. An API server rejects an expression of more than
// 100,000 characters. After each change of the expression, the API server compiles the expression while a new
// pod waits. The compilation time grows with the square of the number of operators, and is about 50 ms for 250
// operators.
const (
	maxConditionBytes     = 32 << 10
	maxConditionOperators = 250
)

// Condition contains all pods that at least one of several scopes can select. Condition ignores the labels
// of namespaces, because a match condition cannot read these labels. The zero value contains no pod.
type Condition struct {
	// all is set if the condition contains every pod.
	all bool
	// values maps the key of a label to the accepted values, for the scopes that only require one label.
	// Keys and values are CEL strings. One list of values compiles faster than a term for each scope.
	values map[string]sets.Set[string]
	// terms are the CEL expressions of the other scopes.
	terms sets.Set[string]
}

// NewCondition returns the condition that contains the pods of scopes. If its expression would be too long,
// NewCondition returns a broader condition with a shorter expression, which contains more pods. See fitting.
func NewCondition(scopes ...Scope) Condition {
	c := Condition{}
	for _, scope := range scopes {
		c.add(scope)
	}
	return c.fitting()
}

// fitting returns the first of these conditions whose expression is within the limits: c, the coarse form of c,
// and the condition that contains every pod.
func (c Condition) fitting() Condition {
	if c.fits() {
		return c
	}
	if coarse := c.coarse(); coarse.fits() {
		return coarse
	}
	return Condition{all: true}
}

// Union returns the condition that contains the pods of both conditions. If its expression would be too long,
// Union returns a broader condition with a shorter expression, which contains more pods. See fitting.
func (c Condition) Union(other Condition) Condition {
	union := Condition{all: c.all || other.all}
	for _, one := range []Condition{c, other} {
		for key, values := range one.values {
			union.accept(key, slices.Collect(maps.Keys(values))...)
		}
		for term := range one.terms {
			union.addTerm(term)
		}
	}
	if union.all {
		return Condition{all: true}
	}
	return union.fitting()
}

// coarse returns the condition in which each term is replaced by the label that the term requires. A term that
// requires no label is kept.
func (c Condition) coarse() Condition {
	coarse := Condition{}
	for key, values := range c.values {
		coarse.accept(key, slices.Collect(maps.Keys(values))...)
	}
	for term := range c.terms {
		if key, values := requiredBy(term); len(values) > 0 {
			coarse.accept(key, values...)
		} else {
			coarse.addTerm(term)
		}
	}
	return coarse
}

// Covers reports whether c contains all pods of other. Covers compares terms, so the result may be false
// for equivalent terms.
func (c Condition) Covers(other Condition) bool {
	if c.all || other.all {
		return c.all
	}
	return c.coversTerms(other) || c.coversTerms(other.coarse())
}

func (c Condition) coversTerms(other Condition) bool {
	for key, values := range other.values {
		if !c.values[key].IsSuperset(values) {
			return false
		}
	}
	return c.terms.IsSuperset(other.terms)
}

// Contains reports whether the condition contains the pods that a scope can select. The condition may
// contain the exact term of the scope, or the coarse form of this term.
func (c Condition) Contains(scope Scope) bool {
	exact := Condition{}
	exact.add(scope)
	return c.Covers(exact)
}

// Labels returns the labels of a pod that satisfy the condition, or nil if the condition has no list of values.
func (c Condition) Labels() map[string]string {
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		for _, value := range slices.Sorted(maps.Keys(c.values[key])) {
			name, err := strconv.Unquote(key)
			text, wrong := strconv.Unquote(value)
			if err == nil && wrong == nil {
				return map[string]string{name: text}
			}
		}
	}
	return nil
}

// Everything reports whether the condition contains every pod. The webhook then needs no match condition.
func (c Condition) Everything() bool { return c.all }

// Expression returns the CEL expression of a condition that does not contain every pod. Equal
// conditions have equal expressions.
func (c Condition) Expression() string {
	terms := slices.Collect(maps.Keys(c.terms))
	for key, values := range c.values {
		terms = append(terms, "("+oneOf(key, slices.Collect(maps.Keys(values)))+")")
	}
	if len(terms) == 0 {
		return noPod
	}
	slices.Sort(terms)
	return expressionStart + strings.Join(terms, expressionOr) + expressionEnd
}

func (c Condition) fits() bool {
	if c.all {
		return true
	}
	expression := c.Expression()
	return len(expression) <= maxConditionBytes &&
		strings.Count(expression, "&&")+strings.Count(expression, "||") <= maxConditionOperators
}

// add adds the pods of a scope. A scope that only requires one label is added to values instead of terms.
func (c *Condition) add(scope Scope) {
	requirements, selectable := scope.pods.Requirements()
	if !selectable {
		return
	}
	if scope.namespace == "" && len(requirements) == 1 {
		if key, values := acceptedBy(&requirements[0]); len(values) > 0 {
			c.accept(key, values...)
			return
		}
	}
	if term := termOf(scope.namespace, requirements); term != "" {
		c.addTerm(term)
	} else {
		c.all = true
	}
}

func (c *Condition) accept(key string, values ...string) {
	if c.values == nil {
		c.values = map[string]sets.Set[string]{}
	}
	if c.values[key] == nil {
		c.values[key] = sets.Set[string]{}
	}
	c.values[key].Insert(values...)
}

func (c *Condition) addTerm(term string) {
	if c.terms == nil {
		c.terms = sets.Set[string]{}
	}
	c.terms.Insert(term)
}
