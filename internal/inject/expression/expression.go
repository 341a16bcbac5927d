package expression

import (
	"errors"
	"fmt"
	"math/big"
)

// Expression is a parsed formula over one variable.
type Expression struct {
	text string
	root node
}

// node is a part of a formula; value stands for the variable.
type node func(value *big.Rat) (*big.Rat, error)

var errDivisionByZero = errors.New("division by zero")

// Parse reads a formula: numbers, percent (50%), quantities (100m, 1Gi), the
// variable, + - * /, parentheses, max() and min(). The error says where and
// what is wrong.
func Parse(text, variable string) (*Expression, error) {
	tokens, err := scan(text)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	p := &parser{tokens: tokens, variable: variable}
	root, err := p.all()
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	return &Expression{text: text, root: root}, nil
}

// Evaluate computes the formula for a value of the variable. Division by zero
// is an error.
func (e *Expression) Evaluate(value *big.Rat) (*big.Rat, error) {
	result, err := e.root(value)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", e.text, err)
	}
	return result, nil
}

func constant(number *big.Rat) node {
	return func(*big.Rat) (*big.Rat, error) { return number, nil }
}

func variable(value *big.Rat) (*big.Rat, error) { return value, nil }

func negative(of node) node {
	return func(value *big.Rat) (*big.Rat, error) {
		number, err := of(value)
		if err != nil {
			return nil, err
		}
		return new(big.Rat).Neg(number), nil
	}
}

func binary(operator string, left, right node) node {
	return func(value *big.Rat) (*big.Rat, error) {
		a, err := left(value)
		if err != nil {
			return nil, err
		}
		b, err := right(value)
		if err != nil {
			return nil, err
		}
		return compute(operator, a, b)
	}
}

func compute(operator string, a, b *big.Rat) (*big.Rat, error) {
	switch operator {
	case "+":
		return new(big.Rat).Add(a, b), nil
	case "-":
		return new(big.Rat).Sub(a, b), nil
	case "*":
		return new(big.Rat).Mul(a, b), nil
	}
	if b.Sign() == 0 {
		return nil, errDivisionByZero
	}
	return new(big.Rat).Quo(a, b), nil
}

// extreme picks the largest argument for sign 1, the smallest for -1.
func extreme(sign int, arguments []node) node {
	return func(value *big.Rat) (*big.Rat, error) {
		var best *big.Rat
		for _, argument := range arguments {
			number, err := argument(value)
			if err != nil {
				return nil, err
			}
			if best == nil || number.Cmp(best) == sign {
				best = number
			}
		}
		return best, nil
	}
}
