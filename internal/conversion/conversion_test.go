package conversion

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	alpha = "apps.kruise.io/v1alpha1"
	beta  = "apps.kruise.io/v1beta1"
)

func read(t *testing.T, version, document string) map[string]any {
	t.Helper()
	object := map[string]any{"metadata": map[string]any{}}
	require.NoError(t, yaml.Unmarshal([]byte(document), &object))
	object["apiVersion"] = version
	return object
}

func TestEachFormOfV1alpha1HasItsFormInV1beta1(t *testing.T) {
	for name, c := range map[string]struct{ alpha, beta string }{
		"nothing that differs": {
			`{metadata: {name: x, labels: {a: b}}, spec: {selector: {}}}`,
			`{metadata: {name: x, labels: {a: b}}, spec: {selector: {}}}`,
		},
		"a namespace": {
			`{spec: {namespace: web}}`,
			`{spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}}`,
		},
		"a selector of namespaces": {
			`{spec: {namespaceSelector: {matchLabels: {env: prod}}}}`,
			`{spec: {namespaceSelector: {matchLabels: {env: prod}}}}`,
		},
		"a selector of one namespace": {
			`{spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}}`,
			`{metadata: {annotations: {outrigger.io/v1alpha1-scope: '{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"web"}}}'}},
			  spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}}`,
		},
		"a selector of a name that no namespace can have": {
			`{spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: Web}}}}`,
			`{spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: Web}}}}`,
		},
		"both": {
			`{metadata: {annotations: {a: b}}, spec: {namespace: web, namespaceSelector: {matchLabels: {env: prod}, matchExpressions: [{key: x, operator: Exists}]}}}`,
			`{metadata: {annotations: {a: b, outrigger.io/v1alpha1-scope: '{"namespace":"web","namespaceSelector":{"matchExpressions":[{"key":"x","operator":"Exists"}],"matchLabels":{"env":"prod"}}}'}},
			  spec: {namespaceSelector: {matchLabels: {env: prod}, matchExpressions: [{key: x, operator: Exists}, {key: kubernetes.io/metadata.name, operator: In, values: [web]}]}}}`,
		},
		"an empty namespace": {
			`{spec: {namespace: "", paused: true}}`,
			`{metadata: {annotations: {outrigger.io/v1alpha1-scope: '{"namespace":""}'}}, spec: {paused: true}}`,
		},
		"a custom version": {
			`{metadata: {labels: {apps.kruise.io/sidecarset-custom-version: v2, a: b}}, spec: {selector: {}}}`,
			`{metadata: {labels: {a: b}}, spec: {selector: {}, customVersion: v2}}`,
		},
		"a custom version as the only label": {
			`{metadata: {name: x, labels: {apps.kruise.io/sidecarset-custom-version: ""}}}`,
			`{metadata: {name: x}, spec: {customVersion: ""}}`,
		},
		// Validation rejects these values after the conversion.
		"an invalid namespace": {`{spec: {namespace: 5}}`, `{spec: {namespace: 5}}`},
		"no list of expressions": {
			`{spec: {namespace: web, namespaceSelector: {matchExpressions: {}}}}`,
			`{spec: {namespace: web, namespaceSelector: {matchExpressions: {}}}}`,
		},
		"an invalid label": {`{spec: {customVersion: "a b"}}`, `{spec: {customVersion: "a b"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			v1alpha1, v1beta1 := read(t, alpha, c.alpha), read(t, beta, c.beta)
			assert.Equal(t, v1beta1, converted(t, v1alpha1, beta))
			assert.Equal(t, v1alpha1, converted(t, v1beta1, alpha))
		})
	}
}

func TestOnlyTheNewestWordCounts(t *testing.T) {
	for name, c := range map[string]struct{ beta, alpha string }{
		"a selector changed under its annotation": {
			`{metadata: {annotations: {outrigger.io/v1alpha1-scope: '{"namespace":"web","namespaceSelector":{}}'}}, spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}}`,
			`{spec: {namespace: shop}}`,
		},
		"a selector removed under its annotation": {
			`{metadata: {annotations: {outrigger.io/v1alpha1-scope: '{"namespace":"web","namespaceSelector":{}}'}}, spec: {selector: {}}}`,
			`{spec: {selector: {}}}`,
		},
		"an annotation with more fields": {
			`{metadata: {annotations: {outrigger.io/v1alpha1-scope: '{"namespace":"","volumes":[]}'}}, spec: {selector: {}}}`,
			`{spec: {selector: {}}}`,
		},
		"an empty annotation": {
			`{metadata: {annotations: {outrigger.io/v1alpha1-scope: web}}}`,
			`{}`,
		},
		"a namespace written again": {
			`{spec: {namespace: web, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}}`,
			`{spec: {namespace: web}}`,
		},
		"another namespace": {
			`{spec: {namespace: shop, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}}`,
			`{spec: {namespace: shop}}`,
		},
		"another namespace with a selector": {
			`{metadata: {annotations: {outrigger.io/v1alpha1-scope: '{"namespace":"web","namespaceSelector":{"matchLabels":{"a":"b"}}}'}}, spec: {namespace: shop,
				namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [web]}]}}}`,
			`{spec: {namespace: shop, namespaceSelector: {matchLabels: {a: b}}}}`,
		},
		"a namespace beside a selector of v1beta1": {
			`{spec: {namespace: shop, namespaceSelector: {matchLabels: {a: b}}}}`,
			`{spec: {namespace: shop, namespaceSelector: {matchLabels: {a: b}}}}`,
		},
		"kubectl label on an object read as v1beta1": {
			`{metadata: {labels: {apps.kruise.io/sidecarset-custom-version: v3}}, spec: {selector: {}, customVersion: v2}}`,
			`{metadata: {labels: {apps.kruise.io/sidecarset-custom-version: v3}}, spec: {selector: {}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v1alpha1, v1beta1 := read(t, alpha, c.alpha), read(t, beta, c.beta)
			assert.Equal(t, v1alpha1, converted(t, v1beta1, alpha))
		})
	}
}

// The API server also converts partial objects to determine the manager of a field.
func TestFragmentsBecomeObjects(t *testing.T) {
	for _, versions := range [][2]string{{alpha, beta}, {beta, alpha}} {
		fragment := map[string]any{"apiVersion": versions[0], "kind": "SidecarSet"}
		require.NoError(t, Convert(fragment, versions[1]))
		assert.Equal(t, map[string]any{"apiVersion": versions[1], "kind": "SidecarSet", "metadata": map[string]any{}}, fragment)
	}
}

func TestVersionsThatDoNotExistAreRejected(t *testing.T) {
	for _, c := range [][2]string{{alpha, "apps.kruise.io/v1"}, {"apps.kruise.io/v1", alpha}, {"v1", "v1"}, {"", beta}} {
		object := map[string]any{"apiVersion": c[0]}
		require.ErrorContains(t, Convert(object, c[1]), "use apps.kruise.io/v1alpha1 or apps.kruise.io/v1beta1", "%v", c)
		assert.Equal(t, map[string]any{"apiVersion": c[0]}, object)
	}
	object := map[string]any{"apiVersion": beta}
	require.NoError(t, Convert(object, beta))
}

func TestRoundTripsLoseNothing(t *testing.T) {
	for seed := range uint64(20_000) {
		g := generator{rand.New(rand.NewPCG(seed, 0))}
		v1alpha1 := g.set(alpha)
		require.Equal(t, v1alpha1, converted(t, converted(t, v1alpha1, beta), alpha), "seed %d", seed)
		v1beta1 := g.set(beta)
		require.Equal(t, v1beta1, converted(t, converted(t, v1beta1, alpha), beta), "seed %d", seed)
	}
}

// converted returns a copy of object that is converted to another version.
func converted(t *testing.T, object map[string]any, to string) map[string]any {
	t.Helper()
	result := runtime.DeepCopyJSON(object)
	require.NoError(t, Convert(result, to))
	return result
}

// generator creates random SidecarSets, including all forms of the fields that differ between the versions.
type generator struct{ *rand.Rand }

func (g generator) set(version string) map[string]any {
	metadata := map[string]any{"name": "x"}
	g.maybe(metadata, "annotations", func() any { return map[string]any{"a": "b"} })
	labels := map[string]any{}
	g.maybe(labels, "app", func() any { return "x" })
	spec := map[string]any{"selector": g.value(2)}
	g.maybe(spec, "containers", func() any { return g.value(3) })
	g.maybe(spec, "futureField", func() any { return g.value(2) })
	g.maybe(spec, "namespaceSelector", func() any { return g.selector() })
	if version == alpha {
		g.maybe(spec, "namespace", func() any { return g.pick("web", "shop", "") })
		g.maybe(labels, "apps.kruise.io/sidecarset-custom-version", func() any { return g.pick("v1", "") })
	} else {
		g.maybe(spec, "customVersion", func() any { return g.pick("v1", "", "not a label") })
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	object := map[string]any{"apiVersion": version, "kind": "SidecarSet", "metadata": metadata, "spec": spec}
	g.maybe(object, "status", func() any { return g.value(2) })
	return object
}

func (g generator) selector() map[string]any {
	selector := map[string]any{}
	names := map[string]any{}
	g.maybe(names, "kubernetes.io/metadata.name", func() any { return g.pick("web", "shop", "Web") })
	g.maybe(names, "env", func() any { return "prod" })
	g.maybe(selector, "matchLabels", func() any { return names })
	g.maybe(selector, "matchExpressions", func() any {
		all := []any{}
		for range g.IntN(3) {
			all = append(all, map[string]any{
				"key": g.pick("kubernetes.io/metadata.name", "env"), "operator": "In", "values": []any{g.pick("web", "shop")},
			})
		}
		return all
	})
	return selector
}

func (g generator) maybe(object map[string]any, key string, value func() any) {
	if g.IntN(2) == 0 {
		object[key] = value()
	}
}

func (g generator) pick(values ...any) any { return values[g.IntN(len(values))] }

func (g generator) value(depth int) any {
	kind := g.IntN(6)
	if depth == 0 {
		kind = g.IntN(4)
	}
	switch kind {
	case 0:
		return g.Int64()
	case 1:
		return g.pick("", "web", "<&>", "☃")
	case 2:
		return g.pick(true, false, nil)
	case 3:
		return g.Float64()
	case 4:
		list := []any{}
		for range g.IntN(3) {
			list = append(list, g.value(depth-1))
		}
		return list
	}
	object := map[string]any{}
	for i := range g.IntN(4) {
		object[fmt.Sprintf("field%d", i)] = g.value(depth - 1)
	}
	return object
}
