package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAPlanIsAFunctionOfItsSeed(t *testing.T) {
	sets, deployments := []string{"a", "b"}, []string{"web"}
	assert.Equal(t, Plan(7, 200, sets, deployments), Plan(7, 200, sets, deployments))
	assert.NotEqual(t, Plan(7, 200, sets, deployments), Plan(8, 200, sets, deployments))
	assert.Equal(t, Plan(7, 200, sets, deployments)[:50], Plan(7, 50, sets, deployments), "a longer plan begins as a shorter one")
}

func TestALongPlanHasFaultsOfEveryKind(t *testing.T) {
	kinds := map[Kind]bool{}
	for _, f := range Plan(1, 100, []string{"a", "b", "c"}, []string{"web", "api"}) {
		kinds[f.Kind] = true
	}
	for _, r := range rules(nil, nil) {
		assert.True(t, kinds[r.kind], "%s", r.kind)
	}
}

func TestWhatLastsHasItsTargetForItself(t *testing.T) {
	busy := map[string]Fault{}
	for _, f := range Plan(3, 500, []string{"a", "b"}, []string{"web", "api"}) {
		if f.Kind != Kill && f.Kind != Freeze && f.Kind != Exhausted {
			continue
		}
		before := busy[f.Target]
		assert.GreaterOrEqual(t, f.At, before.At+before.For, "%s and %s", before, f)
		busy[f.Target] = f
	}
}
