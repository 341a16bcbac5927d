package policy

// Rule decides about a subject that a check holds for.
type Rule[Subject, Decision any] struct {
	When func(Subject) bool
	Then Decision
}

// Chain is an ordered list of rules.
type Chain[Subject, Decision any] []Rule[Subject, Decision]

// Decide returns the decision of the first rule whose check holds, and the zero
// decision when none does.
func (c Chain[Subject, Decision]) Decide(subject Subject) (decision Decision) {
	for i := range c {
		if c[i].When(subject) {
			return c[i].Then
		}
	}
	return decision
}
