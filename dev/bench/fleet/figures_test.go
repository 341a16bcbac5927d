package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/dev/bench/testbed"
	"github.com/outrigger/outrigger/dev/witness"
)

func update(at time.Time, set string) witness.Update {
	return witness.Update{At: at, Labels: map[string]string{testbed.AppLabel: set}}
}

func TestASetReachesAPercentageWithThePodThatCompletesIt(t *testing.T) {
	began := time.Unix(100, 0)
	var served []witness.Update
	for i, set := range []string{"a", "b", "a", "a", "b", "b"} {
		served = append(served, update(began.Add(time.Duration(i+1)*time.Second), set))
	}
	assert.Equal(t, []time.Duration{3 * time.Second, 5 * time.Second}, reachedBySet(served, began, 3, 50), "2 of 3 pods are the first half")
	assert.Equal(t, []time.Duration{4 * time.Second, 6 * time.Second}, reachedBySet(served, began, 3, 100))
	assert.Equal(t, []time.Duration{4 * time.Second}, reachedBySet(served[:4], began, 3, 100), "b is not there yet")
}

func TestTheLongestGapAfterAMoment(t *testing.T) {
	began := time.Unix(100, 0)
	var asked []witness.Update
	for _, second := range []int{0, 9, 10, 14, 15} {
		asked = append(asked, update(began.Add(time.Duration(second)*time.Second), "a"))
	}
	assert.Equal(t, 9*time.Second, longestGap(asked, time.Time{}))
	assert.Equal(t, 4*time.Second, longestGap(asked, began.Add(11*time.Second)), "the gap that was open then counts")
	assert.Zero(t, longestGap(asked[:1], time.Time{}))
}

func TestSizesThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		args  []string
		cause string
	}{
		{[]string{"idle-sets", "--sets=0"}, "--sets 0: at least 1"},
		{[]string{"create-sets", "--workers=0"}, "--workers 0: at least 1"},
		{[]string{"rollouts", "--sets=3", "--pods=2"}, "--sets 3 and --pods 2: each set needs a pod"},
		{[]string{"rest", "--duration=0s"}, "--duration 0s: more than 0"},
		{[]string{"start", "--window=0"}, "--window 0: at least one pod of a set must be allowed to move"},
	} {
		var out bytes.Buffer
		root := newCommand()
		root.SetArgs(c.args)
		root.SetOut(&out)
		require.EqualError(t, root.ExecuteContext(t.Context()), c.cause)
		assert.Empty(t, out.String())
	}
}
