package match

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// evaluated returns the program of an expression, with the variables of match conditions.
func evaluated(t *testing.T, expression string) cel.Program {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("request", cel.DynType))
	require.NoError(t, err)
	ast, issues := env.Compile(expression)
	require.NoError(t, issues.Err(), expression)
	require.True(t, ast.OutputType().IsExactType(cel.BoolType), expression)
	program, err := env.Program(ast, cel.EvalOptions(cel.OptTrackCost))
	require.NoError(t, err)
	return program
}

// called evaluates a match condition. called returns whether an API server calls the webhook for a pod, and the
// cost of the evaluation.
func called(t *testing.T, program cel.Program, namespace string, podLabels map[string]string) (bool, uint64) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, Labels: podLabels}}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	require.NoError(t, err)
	result, details, err := program.Eval(map[string]any{"object": object, "request": map[string]any{"namespace": namespace}})
	require.NoError(t, err)
	return result.Value().(bool), *details.ActualCost()
}

func scopeOf(spec v1alpha1.SidecarSetSpec) Scope {
	scope, _ := NewScope(&spec) // the tests include requirements that cannot be parsed
	return scope
}

// hostile returns texts that could end a quoted string, and texts that are invalid in labels.
func hostile() []string {
	return []string{"", "a", "b", `"`, `'`, `\`, `"] || true || l["`, "') || true", "a\nb", " ||\n", "\x00", "ü", "日本", "💥", "a.b/c", "//", "`", "${x}", "%s"}
}

// The condition is true for each pod that a SidecarSet selects, independent of the labels of the namespace.
func TestSpec4_16_TheConditionContainsEachSelectedPod(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(of ...string) string { return of[random.IntN(len(of))] }
	keys := append(hostile(), "app", "tier", "a/b")
	selected, spared := 0, 0
	for range 1000 {
		var scopes []Scope
		for range random.IntN(4) {
			spec := v1alpha1.SidecarSetSpec{Selector: drawnSelector(random, draw, keys)}
			if random.IntN(3) == 0 {
				spec.Namespace = draw(append(hostile(), "x", "y")...)
			}
			if random.IntN(3) == 0 {
				spec.NamespaceSelector = drawnSelector(random, draw, keys)
			}
			scopes = append(scopes, scopeOf(spec))
		}
		condition := NewCondition(scopes...)
		if condition.Everything() {
			continue
		}
		parsed := ParseCondition(condition.Expression())
		require.Equal(t, condition.Expression(), parsed.Expression())
		require.True(t, parsed.Covers(condition) && condition.Covers(parsed))
		program := evaluated(t, condition.Expression())
		for range 30 {
			namespace, podLabels := draw(append(hostile(), "x", "y")...), map[string]string{}
			for range random.IntN(4) {
				podLabels[draw(keys...)] = draw(hostile()...)
			}
			// Namespaces can have any labels, so only the name of the namespace counts.
			matches := false
			for _, scope := range scopes {
				matches = matches || scope.Labels(podLabels) && (scope.OneNamespace() == "" || scope.OneNamespace() == namespace)
			}
			asked, _ := called(t, program, namespace, podLabels)
			require.Equal(t, matches, asked, "%s\nfor %q in %q", condition.Expression(), podLabels, namespace)
			if matches {
				selected++
			} else {
				spared++
			}
		}
	}
	assert.Greater(t, selected, 500)
	assert.Greater(t, spared, 500)
}

func drawnSelector(random *rand.Rand, draw func(...string) string, keys []string) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	for range random.IntN(3) {
		if selector.MatchLabels == nil {
			selector.MatchLabels = map[string]string{}
		}
		selector.MatchLabels[draw(keys...)] = draw(hostile()...)
	}
	for range random.IntN(3) {
		requirement := metav1.LabelSelectorRequirement{Key: draw(keys...), Operator: metav1.LabelSelectorOperator(draw("In", "NotIn", "Exists", "DoesNotExist", "Near"))}
		if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpNotIn {
			requirement.Values = []string{draw(hostile()...), draw(hostile()...)}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

func app(name string) Scope {
	return scopeOf(v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}})
}

func TestSpec4_16_TheExpressionIsStableAndRead(t *testing.T) {
	a, b := app("a"), app("b")
	both := NewCondition(a, b)
	assert.Equal(t, both.Expression(), NewCondition(b, a, b).Expression(), "sorted, without duplicates")
	assert.Equal(t, `[has(object.metadata.labels) ? object.metadata.labels : {}].exists(l,
("app" in l && l["app"] in ["a", "b"])
)`, both.Expression(), "one list compiles faster than a term for each SidecarSet")
	assert.Equal(t, both.Expression(), ParseCondition(both.Expression()).Expression())
	assert.Equal(t, both.Expression(), NewCondition(a).Union(NewCondition(b)).Expression())
	assert.True(t, both.Covers(NewCondition(a)))
	assert.False(t, NewCondition(a).Covers(both))

	assert.Equal(t, map[string]string{"app": "a"}, both.Labels(), "the labels of one pod")
	assert.True(t, both.Contains(b))
	assert.False(t, both.Contains(app("c")))

	nothing := NewCondition(scopeOf(v1alpha1.SidecarSetSpec{}))
	assert.Equal(t, "false", nothing.Expression(), "without SidecarSets, no pod waits")
	assert.Equal(t, "false", Condition{}.Expression())
	assert.True(t, nothing.Covers(ParseCondition("false")) && ParseCondition("false").Covers(nothing))
	assert.Equal(t, NewCondition(a).Expression(), ParseCondition("false").Union(NewCondition(a)).Expression())
}

func TestSpec4_16_ForeignExpressionsContainEveryPod(t *testing.T) {
	known := NewCondition(app("a")).Expression()
	for _, foreign := range []string{
		"", "true", known + " && false", "(" + known + ")", strings.Replace(known, "(\"app\"", "false && (\"app\"", 1),
		strings.Replace(known, "\n)", " &&\nfalse\n)", 1), expressionStart + expressionEnd,
	} {
		assert.True(t, ParseCondition(foreign).Everything(), foreign)
	}
	all := ParseCondition("")
	assert.True(t, all.Covers(NewCondition(app("a"))))
	assert.False(t, NewCondition(app("a")).Covers(all))
	assert.True(t, NewCondition(app("a")).Union(all).Everything())
	// No requirement of the selector can be parsed, so the SidecarSet could match every pod.
	unreadable := scopeOf(v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "x"}}})
	assert.True(t, NewCondition(unreadable).Everything())
}

// The exact terms of the SidecarSets exceed the limits, but their coarse form does not.
func TestSpec4_16_AUnionThatIsTooLargeHasTheCoarseForm(t *testing.T) {
	current, few := NewCondition(), NewCondition()
	for i := range 200 {
		scope := scopeOf(v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{"app": fmt.Sprint("a", i), "tier": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x", "y"}}},
		}})
		current = current.Union(NewCondition(scope))
		if i < 3 {
			few = few.Union(NewCondition(scope))
		}
		require.False(t, current.Everything(), i)
		require.True(t, current.Contains(scope), i)
	}
	assert.Equal(t, current.Expression(), ParseCondition(current.Expression()).Expression())
	// After most SidecarSets are deleted, the exact terms of the remaining SidecarSets are within the limits.
	assert.True(t, current.Covers(few))
	assert.False(t, few.Covers(current))
	// The selector of exists requires no specific value of a label, so the coarse form keeps the term of
	// exists.
	exists := scopeOf(v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "only", Operator: metav1.LabelSelectorOpExists}}}})
	assert.True(t, current.Union(NewCondition(exists)).Contains(exists))
}

// API servers limit the cost of one expression to 1,000,000, and reject the pod if the cost is larger.
func TestSpec4_16_TheLargestConditionIsFarBelowTheLimitsOfAPIServers(t *testing.T) {
	const limit = 1_000_000
	long := strings.Repeat("v", 50)
	for name, of := range map[string]func(int) Scope{
		"one label": func(i int) Scope { return app(fmt.Sprint(long, i)) },
		"keys":      func(i int) Scope { return expressions(requirement(fmt.Sprint(i), "Exists")) },
		"values": func(i int) Scope {
			values := make([]string, 100)
			for j := range values {
				values[j] = fmt.Sprint(long, i, "-", j)
			}
			return expressions(requirement("app", "NotIn", values...))
		},
	} {
		many := func(n int) Condition {
			scopes := make([]Scope, n)
			for i := range scopes {
				scopes[i] = of(i)
			}
			return NewCondition(scopes...)
		}
		n := sort.Search(2000, func(n int) bool { return many(n).Everything() }) - 1
		largest := many(n)
		_, cost := called(t, evaluated(t, largest.Expression()), "x", map[string]string{"app": long})
		assert.Less(t, cost, uint64(limit/10), name)
		t.Logf("%s: %d selectors in %d bytes cost %d", name, n, len(largest.Expression()), cost)
		assert.True(t, largest.Union(NewCondition(of(n))).Everything(), name)
	}
}

// If the exact terms exceed the limits, each term is replaced by a label that the selector requires.
func TestSpec4_16_ManySelectorsWithSeveralLabelsAreCompiledFast(t *testing.T) {
	scopes := make([]Scope, 500)
	for i := range scopes {
		scopes[i] = expressions(requirement("app", "In", fmt.Sprint(i)), requirement("tier", "NotIn", "test"), requirement("zone", "In", "a", "b"))
	}
	few, many := NewCondition(scopes[:40]...), NewCondition(scopes...)
	require.False(t, many.Everything())
	for _, c := range []struct {
		condition Condition
		labels    map[string]string
		want      bool
	}{
		{few, map[string]string{"app": "7", "zone": "a"}, true},
		{few, map[string]string{"app": "7", "zone": "c"}, false},
		{many, map[string]string{"app": "7", "zone": "a"}, true},
		{many, map[string]string{"app": "7", "zone": "c"}, true},
		{many, map[string]string{"app": "500", "zone": "a"}, false},
	} {
		asked, _ := called(t, evaluated(t, c.condition.Expression()), "x", c.labels)
		assert.Equal(t, c.want, asked, c.labels)
	}
	assert.True(t, few.Contains(scopes[7]) && many.Contains(scopes[7]))
	assert.Nil(t, few.Labels())
	assert.False(t, many.Union(few).Everything(), "new SidecarSets are added to a condition with required labels")
}

func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func expressions(of ...metav1.LabelSelectorRequirement) Scope {
	return scopeOf(v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchExpressions: of}})
}
