package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAnImageHasFourNames(t *testing.T) {
	seen := map[string]bool{}
	for name := "side-a:v2"; name != ""; name = otherName(name) {
		assert.False(t, seen[name], name)
		assert.True(t, strings.Contains(name, "side-a:v2"), name)
		seen[name] = true
	}
	assert.Len(t, seen, 4)
	assert.Empty(t, otherName("side-a:bad"))
}
