package stage

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

func TestASelectorThatSelectsNothingIsFound(t *testing.T) {
	for selector, key := range map[string]string{
		"":                                     "",
		"tier=edge":                            "",
		"tier=edge,team=a":                     "",
		"tier in (edge,core),tier":             "",
		"!tier,team=a":                         "",
		"tier notin (edge),tier!=b":            "",
		"tier=edge,tier=core":                  "tier",
		"team=a,tier in (a,b),tier=c":          "tier",
		"tier in (a,b),tier notin (a),tier!=b": "tier",
		"tier,!tier":                           "tier",
		"tier=edge,!tier":                      "tier",
	} {
		parsed, err := labels.Parse(selector)
		require.NoError(t, err, selector)
		requirements, _ := parsed.Requirements()
		assert.Equal(t, key, Contradiction(requirements), selector)
	}
}
