package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func drawn(seed uint64, n int) []Fault {
	return Plan(seed, n, usualGap, rules(setNames(), deploymentNames()))
}

func TestAPlanIsAFunctionOfItsSeed(t *testing.T) {
	assert.Equal(t, drawn(7, 200), drawn(7, 200))
	assert.NotEqual(t, drawn(7, 200), drawn(8, 200))
	assert.Equal(t, drawn(7, 200)[:50], drawn(7, 50), "a longer plan begins as a shorter one")
}

func TestALongPlanHasFaultsOfEveryKind(t *testing.T) {
	kinds := map[Kind]bool{}
	for _, f := range drawn(1, 100) {
		kinds[f.Kind] = true
	}
	for _, r := range rules(nil, nil) {
		assert.True(t, kinds[r.kind], "%s", r.kind)
	}
}

func TestLongFaultsOfATargetDoNotOverlap(t *testing.T) {
	last := map[string]Fault{}
	for _, f := range drawn(3, 500) {
		if f.Kind != Kill && f.Kind != Freeze && f.Kind != Exhausted {
			continue
		}
		before := last[f.Target]
		assert.GreaterOrEqual(t, f.At, before.At+before.For, "%s and %s", before, f)
		last[f.Target] = f
	}
}

func TestMildFaultsSpareTheProcesses(t *testing.T) {
	for _, f := range Plan(1, 300, usualGap, mildRules(setNames(), deploymentNames())) {
		assert.NotContains(t, []Kind{Kill, Freeze, Exhausted}, f.Kind)
	}
}
