package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/dev/observer"
)

func update(at time.Time, set string) observer.Update {
	return observer.Update{At: at, Labels: map[string]string{appLabel: set}}
}

func TestASetReachesAPercentageWithThePodThatCompletesIt(t *testing.T) {
	began := time.Unix(100, 0)
	var served []observer.Update
	for i, set := range []string{"a", "b", "a", "a", "b", "b"} {
		served = append(served, update(began.Add(time.Duration(i+1)*time.Second), set))
	}
	assert.Equal(t, []time.Duration{3 * time.Second, 5 * time.Second}, reachedBySet(served, began, 3, 50), "2 of 3 pods are the first half")
	assert.Equal(t, []time.Duration{4 * time.Second, 6 * time.Second}, reachedBySet(served, began, 3, 100))
	assert.Equal(t, []time.Duration{4 * time.Second}, reachedBySet(served[:4], began, 3, 100), "b is not there yet")
}

func TestSizesThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		args  []string
		cause string
	}{
		{[]string{"fleet", "--sets=0"}, "--sets 0: at least 1"},
		{[]string{"fleet", "--workers=0"}, "--workers 0: at least 1"},
		{[]string{"fleet", "--sets=3", "--pods=2"}, "--sets 3 and --pods 2: each SidecarSet needs a pod"},
		{[]string{"rollout", "--rounds=0"}, "--rounds 0: at least one"},
	} {
		var out bytes.Buffer
		root := newCommand()
		root.SetArgs(c.args)
		root.SetOut(&out)
		require.EqualError(t, root.ExecuteContext(t.Context()), c.cause)
		assert.Empty(t, out.String())
	}
}

func TestLinesAreSortedAndAligned(t *testing.T) {
	var lines report
	lines.seconds("seconds", 1500*time.Millisecond)
	lines.each("writes", "%.0f", scaled(difference(map[string]float64{"b": 1}, map[string]float64{"b": 3, "a": 1}), 10))
	assert.Equal(t, ""+
		"seconds                                              1.5\n"+
		"writes, a                                            10\n"+
		"writes, b                                            20\n", lines.String())
}
