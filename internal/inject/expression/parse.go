package expression

import (
	"errors"
	"fmt"
	"math/big"
)

// parser reads
//
//	sum     = product { ("+" | "-") product }
//	product = factor { ("*" | "/") factor }
//	factor  = "-" factor | atom { "%" }
//	atom    = number | variable | "(" sum ")" | ("max" | "min") "(" sum { "," sum } ")"
type parser struct {
	tokens   []token
	at       int
	variable string
}

var errEnd = errors.New("ends too early")

func (p *parser) all() (node, error) {
	root, err := p.sum()
	if err != nil {
		return nil, err
	}
	if p.at < len(p.tokens) {
		return nil, p.unexpected()
	}
	return root, nil
}

func (p *parser) sum() (node, error) { return p.chain(p.product, "+", "-") }

func (p *parser) product() (node, error) { return p.chain(p.factor, "*", "/") }

// chain reads operands joined by either operator, from left to right.
func (p *parser) chain(operand func() (node, error), operators ...string) (node, error) {
	left, err := operand()
	if err != nil {
		return nil, err
	}
	for {
		operator, found := p.accept(operators...)
		if !found {
			return left, nil
		}
		right, err := operand()
		if err != nil {
			return nil, err
		}
		left = binary(operator, left, right)
	}
}

func (p *parser) factor() (node, error) {
	if _, found := p.accept("-"); found {
		of, err := p.factor()
		if err != nil {
			return nil, err
		}
		return negative(of), nil
	}
	atom, err := p.atom()
	if err != nil {
		return nil, err
	}
	for {
		if _, found := p.accept("%"); !found {
			return atom, nil
		}
		atom = binary("/", atom, constant(big.NewRat(100, 1)))
	}
}

func (p *parser) atom() (node, error) {
	if p.at == len(p.tokens) {
		return nil, errEnd
	}
	next := p.tokens[p.at]
	if next.number != nil {
		p.at++
		return constant(next.number), nil
	}
	switch next.text {
	case p.variable:
		p.at++
		return variable, nil
	case "(":
		p.at++
		return p.closed(p.sum)
	case "max", "min":
		p.at++
		return p.call(next.text)
	}
	return nil, p.unexpected()
}

func (p *parser) call(function string) (node, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	sign := map[string]int{"max": 1, "min": -1}[function]
	return p.closed(func() (node, error) {
		var arguments []node
		for {
			argument, err := p.sum()
			if err != nil {
				return nil, err
			}
			arguments = append(arguments, argument)
			if _, found := p.accept(","); !found {
				return extreme(sign, arguments), nil
			}
		}
	})
}

func (p *parser) closed(inner func() (node, error)) (node, error) {
	read, err := inner()
	if err != nil {
		return nil, err
	}
	return read, p.expect(")")
}

func (p *parser) accept(texts ...string) (string, bool) {
	if p.at == len(p.tokens) || p.tokens[p.at].number != nil {
		return "", false
	}
	for _, text := range texts {
		if p.tokens[p.at].text == text {
			p.at++
			return text, true
		}
	}
	return "", false
}

func (p *parser) expect(text string) error {
	if _, found := p.accept(text); found {
		return nil
	}
	if p.at == len(p.tokens) {
		return fmt.Errorf("%q is missing at the end", text)
	}
	return p.unexpected()
}

func (p *parser) unexpected() error {
	next := p.tokens[p.at]
	return fmt.Errorf("column %d: unexpected %q; the variable is %q", next.column, next.text, p.variable)
}
