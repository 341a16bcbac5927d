package expression

import (
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpec4_7_ExpressionsAreExact(t *testing.T) {
	for text, want := range map[string]*big.Rat{
		"cpu":                        big.NewRat(3, 10),
		"cpu*50%":                    big.NewRat(15, 100),
		"max(cpu*0.1, 50m)":          big.NewRat(5, 100),
		"min(cpu, 1, 2)":             big.NewRat(3, 10),
		"0.1+0.2":                    big.NewRat(3, 10),
		"1/3*3":                      big.NewRat(1, 1),
		"1-2-3":                      big.NewRat(-4, 1),
		"2+3*4":                      big.NewRat(14, 1),
		"(2+3)*4":                    big.NewRat(20, 1),
		"8/2/2":                      big.NewRat(2, 1),
		"-cpu+1":                     big.NewRat(7, 10),
		"2*-3":                       big.NewRat(-6, 1),
		"(10+40)%":                   big.NewRat(1, 2),
		"1Gi":                        big.NewRat(1<<30, 1),
		"1.5Ki":                      big.NewRat(1536, 1),
		"2k":                         big.NewRat(2000, 1),
		"1E":                         big.NewRat(1_000_000_000_000_000_000, 1),
		"1e3":                        big.NewRat(1000, 1),
		"1n":                         big.NewRat(1, 1_000_000_000),
		".5":                         big.NewRat(1, 2),
		" max ( min(1,cpu) , 10% ) ": big.NewRat(3, 10),
	} {
		parsed, err := Parse(text, "cpu")
		require.NoError(t, err, text)
		got, err := parsed.Evaluate(big.NewRat(3, 10))
		require.NoError(t, err, text)
		assert.Equal(t, want.RatString(), got.RatString(), text)
	}
}

func TestSpec5_ErrorsOfExpressionsNameThePosition(t *testing.T) {
	for text, want := range map[string]string{
		"cpu * (2":                `")" is missing at the end`,
		"":                        "empty",
		"   ":                     "empty",
		"memory*2":                `column 1: unexpected "memory"; the variable is "cpu"`,
		"1+":                      "ends too early",
		"1 2":                     `column 3: unexpected "2"`,
		"max()":                   `column 5: unexpected ")"`,
		"max(1,":                  "ends too early",
		"max 1":                   `column 5: unexpected "1"`,
		"1Q":                      `column 1: "Q" is not a unit`,
		"1i":                      `column 1: "i" is not a unit`,
		"1MG":                     `column 1: "MG" is not a unit`,
		"cpu $ 2":                 "column 5: unexpected '$'",
		"cpu & 2":                 "column 5: unexpected '&'",
		"1)":                      `column 2: unexpected ")"`,
		"%":                       `column 1: unexpected "%"`,
		"avg(cpu)":                `column 1: unexpected "avg"`,
		"µ":                       "column 1: unexpected 'µ'",
		"1e999":                   `column 5: unexpected "9"`,
		strings.Repeat("(", 2000): "longer than 1024",
	} {
		_, err := Parse(text, "cpu")
		require.ErrorContains(t, err, want, text)
	}
}

func TestSpec4_7_DivisionByZeroIsAnError(t *testing.T) {
	for _, text := range []string{"1/cpu", "max(1, 2/(1-1))", "-(1/0)", "1+1/0", "1/0+1", "1/0%"} {
		parsed, err := Parse(text, "cpu")
		require.NoError(t, err)
		_, err = parsed.Evaluate(new(big.Rat))
		require.ErrorIs(t, err, errDivisionByZero, text)
	}
}
