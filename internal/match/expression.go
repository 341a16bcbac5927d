package match

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// These are the parts of the expression of a Condition. l contains the labels of the pod. Each term is one
// line, because quoted strings contain no line break.
const (
	expressionStart = "[has(object.metadata.labels) ? object.metadata.labels : {}].exists(l,\n"
	expressionOr    = " ||\n"
	expressionEnd   = "\n)"
	noPod           = "false"
)

// ParseCondition reads an expression that Expression returned. For any other expression, ParseCondition returns
// the condition that contains every pod, because the terms of the expression are unknown.
func ParseCondition(expression string) Condition {
	if expression == noPod {
		return Condition{}
	}
	text, found := strings.CutPrefix(expression, expressionStart)
	text, complete := strings.CutSuffix(text, expressionEnd)
	if !found || !complete {
		return Condition{all: true}
	}
	c := Condition{}
	for term := range strings.SplitSeq(text, expressionOr) {
		if !strings.HasPrefix(term, "(") || !strings.HasSuffix(term, ")") || strings.Contains(term, "\n") {
			return Condition{all: true}
		}
		if key, values := parseOneOf(term); len(values) > 0 {
			c.accept(key, values...)
		} else {
			c.addTerm(term)
		}
	}
	if !c.fits() {
		return Condition{all: true}
	}
	return c
}

// parseOneOf returns the key and the values of a term that oneOf wrote. For any other term, parseOneOf returns
// no key and no values.
func parseOneOf(term string) (key string, values []string) {
	key, err := strconv.QuotedPrefix(strings.TrimPrefix(term, "("))
	if err != nil {
		return "", nil
	}
	rest, isList := strings.CutPrefix(term, "("+key+" in l && l["+key+"] in [")
	for isList {
		value, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return "", nil
		}
		values = append(values, value)
		if rest = rest[len(value):]; rest == "])" {
			return key, values
		}
		rest, isList = strings.CutPrefix(rest, ", ")
	}
	return "", nil
}

// requiredBy returns the label that a term of termOf requires, and its accepted values. Of several such labels,
// requiredBy returns the label with the fewest values. For a term without such a label, requiredBy returns no
// values.
func requiredBy(term string) (key string, values []string) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(term, "("), ")"), " && ")
	for i := range len(parts) - 1 {
		// In the result of oneOf, one && separates the two parts of a label with its values.
		name, accepted := parseOneOf("(" + parts[i] + " && " + parts[i+1] + ")")
		if len(accepted) > 0 && (len(values) == 0 || len(accepted) < len(values)) {
			key, values = name, accepted
		}
	}
	return key, values
}

// termOf returns the expression of one scope, or "" if the scope selects every pod.
func termOf(namespace string, requirements labels.Requirements) string {
	var parts []string
	if namespace != "" {
		parts = append(parts, "request.namespace == "+quoted(namespace))
	}
	for i := range requirements {
		if part := expressionOf(&requirements[i]); part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return "(" + strings.Join(slices.Compact(parts), " && ") + ")"
}

// expressionOf returns the expression of a requirement. For an operator that selectors of SidecarSets do
// not have, expressionOf returns "", and the condition contains more pods.
func expressionOf(requirement *labels.Requirement) string {
	key := quoted(requirement.Key())
	switch requirement.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return oneOf(acceptedBy(requirement))
	case selection.NotIn, selection.NotEquals:
		return "!(" + oneOf(key, quotedValues(requirement)) + ")"
	case selection.Exists:
		return key + " in l"
	case selection.DoesNotExist:
		return "!(" + key + " in l)"
	}
	return ""
}

// acceptedBy returns the label that a requirement needs, and its accepted values. If the requirement does
// not list accepted values, acceptedBy returns no key and no values.
func acceptedBy(requirement *labels.Requirement) (key string, values []string) {
	switch requirement.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return quoted(requirement.Key()), quotedValues(requirement)
	}
	return "", nil
}

func quotedValues(requirement *labels.Requirement) []string {
	values := requirement.ValuesUnsorted()
	for i := range values {
		values[i] = quoted(values[i])
	}
	return values
}

func oneOf(key string, values []string) string {
	slices.Sort(values)
	return key + " in l && l[" + key + "] in [" + strings.Join(slices.Compact(values), ", ") + "]"
}

// quoted returns a CEL string. CEL supports the escape sequences that strconv writes.
func quoted(text string) string { return strconv.QuoteToASCII(text) }
