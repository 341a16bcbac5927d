package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestColoursDoNotMoveTheColumnsOfTheChecks(t *testing.T) {
	all := Checks{{"temporal", CheckOK, "answers"}, {"webhook", CheckFailed, "down"}, {"cluster", CheckUnknown, "no right"}}
	marked := func(_ Tone, word string) string { return "<" + word + ">" }
	assert.Equal(t, `PART       STATE     MESSAGE
temporal   <ok>        answers
webhook    <failed>    down
cluster    <unknown>   no right
`, all.Text(Style{Paint: marked}))
}
