package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Temporal rejects a workflow task whose summary is too long.
func TestSummariesAreOneBoundedLine(t *testing.T) {
	assert.Equal(t, "paused by signal: a b", Summary("paused by signal: a\n\tb"))
	long := Summary(strings.Repeat("ä", 1000))
	assert.LessOrEqual(t, len(long), MaxSummary)
	assert.True(t, strings.HasSuffix(long, "ä…"), long)
}
