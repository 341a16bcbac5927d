package figures

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLinesAreSortedAndAligned(t *testing.T) {
	var lines Lines
	lines.Seconds("seconds", 1500*time.Millisecond)
	lines.Each("writes", "%.0f", Scaled(Difference(map[string]float64{"b": 1}, map[string]float64{"b": 3, "a": 1}), 10))
	assert.Equal(t, ""+
		"seconds                                              1.5\n"+
		"writes, a                                            10\n"+
		"writes, b                                            20\n", lines.String())
}
