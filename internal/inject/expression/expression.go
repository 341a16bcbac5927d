// Package expression evaluates expressions such as `max(cpu*50%, 50m)` without rounding. An
// expression computes a resource of a sidecar from the resources of app containers (SPEC §4.7).
package expression

import (
	"errors"
	"fmt"
	"math/big"
)

// Expression is a valid expression over one variable.
type Expression struct {
	text, variable string
	tokens         []token
}

var (
	errDivisionByZero = errors.New("division by zero")
	errEnd            = errors.New("ends too early")
)

// Parse parses an expression. An expression contains numbers, percentages (50%), quantities (100m, 1Gi), the
// named variable, the operators + - * /, parentheses, and the functions max and min. The error names the
// column and the problem.
func Parse(text, variable string) (*Expression, error) {
	tokens, err := scan(text)
	e := &Expression{text: text, variable: variable, tokens: tokens}
	if err == nil {
		_, err = e.compute(new(big.Rat))
	}
	if err != nil && !errors.Is(err, errDivisionByZero) {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	return e, nil
}

// Evaluate computes the expression for a value of the variable. Division by zero is an
// error.
func (e *Expression) Evaluate(value *big.Rat) (*big.Rat, error) {
	result, err := e.compute(value)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", e.text, err)
	}
	return result, nil
}

func (e *Expression) compute(value *big.Rat) (*big.Rat, error) {
	v := &evaluator{Expression: e, value: value}
	result, err := v.sum()
	switch {
	case err != nil:
		return nil, err
	case v.at < len(v.tokens):
		return nil, v.unexpected()
	case v.dividedByZero:
		return nil, errDivisionByZero
	}
	return result, nil
}

// evaluator computes an expression while reading the tokens:
//
//	sum     = product { ("+" | "-") product }
//	product = factor { ("*" | "/") factor }
//	factor  = "-" factor | atom { "%" }
//	atom    = number | variable | "(" sum ")" | ("max" | "min") "(" sum { "," sum } ")"
type evaluator struct {
	*Expression
	value *big.Rat
	at    int
	// dividedByZero is set after a division by zero. The evaluator then continues, so that Parse also detects
	// later syntax errors.
	dividedByZero bool
}

func (v *evaluator) sum() (*big.Rat, error) { return v.chain(v.product, "+", "-") }

func (v *evaluator) product() (*big.Rat, error) { return v.chain(v.factor, "*", "/") }

// chain reads operands that are joined by any of the operators, from left to right.
func (v *evaluator) chain(operand func() (*big.Rat, error), operators ...string) (*big.Rat, error) {
	left, err := operand()
	for err == nil {
		operator, found := v.accept(operators...)
		if !found {
			return left, nil
		}
		var right *big.Rat
		if right, err = operand(); err == nil {
			left = v.apply(operator, left, right)
		}
	}
	return nil, err
}

func (v *evaluator) apply(operator string, a, b *big.Rat) *big.Rat {
	switch {
	case operator == "+":
		return new(big.Rat).Add(a, b)
	case operator == "-":
		return new(big.Rat).Sub(a, b)
	case operator == "*":
		return new(big.Rat).Mul(a, b)
	case b.Sign() == 0:
		v.dividedByZero = true
		return b
	}
	return new(big.Rat).Quo(a, b)
}

func (v *evaluator) factor() (*big.Rat, error) {
	if _, found := v.accept("-"); found {
		of, err := v.factor()
		if err != nil {
			return nil, err
		}
		return new(big.Rat).Neg(of), nil
	}
	atom, err := v.atom()
	for err == nil {
		if _, found := v.accept("%"); !found {
			return atom, nil
		}
		atom = new(big.Rat).Quo(atom, big.NewRat(100, 1))
	}
	return nil, err
}

func (v *evaluator) atom() (*big.Rat, error) {
	if v.at == len(v.tokens) {
		return nil, errEnd
	}
	next := v.tokens[v.at]
	v.at++
	switch {
	case next.number != nil:
		return next.number, nil
	case next.text == v.variable:
		return v.value, nil
	case next.text == "(":
		inner, err := v.sum()
		if err != nil {
			return nil, err
		}
		return inner, v.expect(")")
	case next.text == "max", next.text == "min":
		return v.extreme(next.text == "max")
	}
	v.at--
	return nil, v.unexpected()
}

func (v *evaluator) extreme(largest bool) (*big.Rat, error) {
	if err := v.expect("("); err != nil {
		return nil, err
	}
	best, err := v.sum()
	for err == nil {
		if _, found := v.accept(","); !found {
			return best, v.expect(")")
		}
		var next *big.Rat
		if next, err = v.sum(); err == nil && (next.Cmp(best) > 0) == largest {
			best = next
		}
	}
	return nil, err
}

func (v *evaluator) accept(texts ...string) (string, bool) {
	if v.at == len(v.tokens) || v.tokens[v.at].number != nil {
		return "", false
	}
	for _, text := range texts {
		if v.tokens[v.at].text == text {
			v.at++
			return text, true
		}
	}
	return "", false
}

func (v *evaluator) expect(text string) error {
	if _, found := v.accept(text); found {
		return nil
	}
	if v.at == len(v.tokens) {
		return fmt.Errorf("%q is missing at the end", text)
	}
	return v.unexpected()
}

func (v *evaluator) unexpected() error {
	next := v.tokens[v.at]
	return fmt.Errorf("column %d: unexpected %q; the variable is %q", next.column, next.text, v.variable)
}
