package match

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestTheIndexEqualsAScanAndForgetsDeletedSets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(of ...string) string { return of[random.IntN(len(of))] }
	drawLabels := func() map[string]string {
		drawn := map[string]string{}
		for range random.IntN(3) {
			drawn[draw("app", "tier")] = draw("a", "b", "c")
		}
		return drawn
	}
	var index Index[string]
	scopes := map[string]Scope{}
	for range 2000 {
		name := fmt.Sprint("set-", random.IntN(20))
		if random.IntN(4) == 0 {
			index.Delete(name)
			delete(scopes, name)
		} else {
			scope := drawnScope(t, drawLabels(), draw, random.IntN(3))
			index.Put(name, scope, name)
			scopes[name] = scope
		}
		pod := drawLabels()
		var scanned []string
		for set, scope := range scopes {
			if scope.Labels(pod) {
				scanned = append(scanned, set)
			}
		}
		found := index.Matching(pod)
		require.ElementsMatch(t, scanned, found)
		require.IsIncreasing(t, append([]string{""}, append(found, "z")...))
	}
	for name := range scopes {
		index.Delete(name)
	}
	assert.Empty(t, index.keys)
	assert.Empty(t, index.byLabel)
	assert.Empty(t, index.anywhere)
}

func drawnScope(t *testing.T, required map[string]string, draw func(...string) string, expressions int) Scope {
	t.Helper()
	selector := &metav1.LabelSelector{MatchLabels: required}
	for range expressions {
		operator := metav1.LabelSelectorOperator(draw("In", "NotIn", "Exists", "DoesNotExist"))
		requirement := metav1.LabelSelectorRequirement{Key: draw("app", "tier"), Operator: operator}
		if operator == metav1.LabelSelectorOpIn || operator == metav1.LabelSelectorOpNotIn {
			requirement.Values = []string{draw("a", "b"), draw("b", "c")}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	scope, err := NewScope(&v1alpha1.SidecarSetSpec{Selector: selector})
	require.NoError(t, err)
	return scope
}
