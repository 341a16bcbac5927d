package expression

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// maxLength limits the evaluation time and the recursion depth of an expression.
const maxLength = 1024

type token struct {
	text string
	// number is nil for names and punctuation.
	number *big.Rat
	// column counts from 1.
	column int
}

var (
	numberPattern = regexp.MustCompile(`^((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][0-9]{1,2})?)([A-Za-z]*)`)
	namePattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

	errTooLong = fmt.Errorf("longer than %d characters", maxLength)
	errEmpty   = errors.New("empty")
)

func scan(text string) ([]token, error) {
	if len(text) > maxLength {
		return nil, errTooLong
	}
	var tokens []token
	for at := 0; at < len(text); {
		rest := text[at:]
		found := token{column: at + 1}
		switch {
		case strings.ContainsAny(rest[:1], " \t\r\n"):
			at++
			continue
		case strings.ContainsAny(rest[:1], "+-*/(),%"):
			found.text = rest[:1]
		case namePattern.MatchString(rest):
			found.text = namePattern.FindString(rest)
		default:
			var err error
			if found.text, found.number, err = quantity(rest); err != nil {
				return nil, fmt.Errorf("column %d: %w", found.column, err)
			}
		}
		tokens = append(tokens, found)
		at += len(found.text)
	}
	if len(tokens) == 0 {
		return nil, errEmpty
	}
	return tokens, nil
}

// quantity reads a number with an optional suffix. Unlike resource.Quantity, quantity does not round.
func quantity(rest string) (string, *big.Rat, error) {
	parts := numberPattern.FindStringSubmatch(rest)
	if parts == nil {
		return "", nil, fmt.Errorf("unexpected %q", []rune(rest)[0])
	}
	number, ok := new(big.Rat).SetString(parts[1])
	if !ok {
		return "", nil, fmt.Errorf("%q is not a number", parts[1])
	}
	unit, ok := unitOf(parts[2])
	if !ok {
		return "", nil, fmt.Errorf("%q is not a unit of Kubernetes quantities", parts[2])
	}
	return parts[0], number.Mul(number, unit), nil
}

// unitOf returns the factor of a suffix of Kubernetes quantities.
func unitOf(suffix string) (*big.Rat, bool) {
	switch suffix {
	case "":
		return big.NewRat(1, 1), true
	case "m":
		return big.NewRat(1, 1_000), true
	case "u":
		return big.NewRat(1, 1_000_000), true
	case "n":
		return big.NewRat(1, 1_000_000_000), true
	}
	if power := strings.Index("kMGTPE", suffix) + 1; power > 0 && len(suffix) == 1 {
		return raise(1000, power), true
	}
	prefix, binary := strings.CutSuffix(suffix, "i")
	if power := strings.Index("KMGTPE", prefix) + 1; binary && power > 0 && len(prefix) == 1 {
		return raise(1024, power), true
	}
	return nil, false
}

func raise(base int64, power int) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(power)), nil))
}
