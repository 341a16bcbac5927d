package inject

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

func patch(policy v1alpha1.SidecarSetPatchPolicyType, annotations map[string]string) v1alpha1.SidecarSetPatchPodMetadata {
	return v1alpha1.SidecarSetPatchPodMetadata{Annotations: annotations, PatchPolicy: policy}
}

func TestSpec4_9_ThePatchContainsOnlyChangedMetadata(t *testing.T) {
	const retain, overwrite, merge = v1alpha1.SidecarSetRetainPatchPolicy, v1alpha1.SidecarSetOverwritePatchPolicy, v1alpha1.SidecarSetMergePatchJSONPolicy
	type one = map[string]string
	for name, test := range map[string]struct {
		has     one
		patches []v1alpha1.SidecarSetPatchPodMetadata
		want    one
	}{
		"Retain writes a missing key":        {nil, []v1alpha1.SidecarSetPatchPodMetadata{patch(retain, one{"k": "v"})}, one{"k": "v"}},
		"Retain leaves a key":                {one{"k": ""}, []v1alpha1.SidecarSetPatchPodMetadata{patch(retain, one{"k": "v"})}, one{}},
		"no policy is Retain":                {one{"k": "old"}, []v1alpha1.SidecarSetPatchPodMetadata{patch("", one{"k": "v"})}, one{}},
		"an empty value is a value":          {nil, []v1alpha1.SidecarSetPatchPodMetadata{patch(retain, one{"k": ""})}, one{"k": ""}},
		"Overwrite writes":                   {one{"k": "old"}, []v1alpha1.SidecarSetPatchPodMetadata{patch(overwrite, one{"k": "v", "l": "w"})}, one{"k": "v", "l": "w"}},
		"Overwrite of the same is no change": {one{"k": "v"}, []v1alpha1.SidecarSetPatchPodMetadata{patch(overwrite, one{"k": "v"})}, one{}},
		"merge sets a missing key verbatim":  {nil, []v1alpha1.SidecarSetPatchPodMetadata{patch(merge, one{"k": `{"log": 1, "no": null}`})}, one{"k": `{"log": 1, "no": null}`}},
		"merge merges": {
			one{"k": `{"main": 2, "gone": 1, "deep": {"a": 1}}`},
			[]v1alpha1.SidecarSetPatchPodMetadata{patch(merge, one{"k": `{"log": 1.50, "gone": null, "deep": {"b": [2], "c": {"d": null}}}`})},
			one{"k": `{"deep":{"a":1,"b":[2],"c":{}},"log":1.50,"main":2}`},
		},
		"merge keeps large numbers and markup": {
			one{"k": `{"n": 12345678901234567890}`}, []v1alpha1.SidecarSetPatchPodMetadata{patch(merge, one{"k": `{"m": "<&>"}`})},
			one{"k": `{"m":"<&>","n":12345678901234567890}`},
		},
		"merge that changes nothing keeps the spelling": {one{"k": `{ "a" : 1 }`}, []v1alpha1.SidecarSetPatchPodMetadata{patch(merge, one{"k": `{"a":1}`})}, one{}},
		"merge of no object replaces":                   {one{"k": `{"a":1}`}, []v1alpha1.SidecarSetPatchPodMetadata{patch(merge, one{"k": `[1]`})}, one{"k": `[1]`}},
		"merge into no object":                          {one{"k": `7`}, []v1alpha1.SidecarSetPatchPodMetadata{patch(merge, one{"k": `{"a":1}`})}, one{"k": `{"a":1}`}},
		"later patches apply to earlier patches": {
			one{"k": `{"a":1}`},
			[]v1alpha1.SidecarSetPatchPodMetadata{patch(merge, one{"k": `{"b":2}`}), patch(merge, one{"k": `{"c":3}`})},
			one{"k": `{"a":1,"b":2,"c":3}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.has)
			got, err := PatchMetadata(test.has, test.patches)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
			assert.Equal(t, before, test.has, "the annotations stay")
		})
	}
}

func TestSpec4_9_TrailingJSONIsRejected(t *testing.T) {
	_, err := PatchMetadata(nil, []v1alpha1.SidecarSetPatchPodMetadata{patch(v1alpha1.SidecarSetMergePatchJSONPolicy, map[string]string{"k": `{} {}`})})
	require.ErrorContains(t, err, "annotation k")
}

func TestSpec4_9_LaterSetsMergeWithMetadataOfEarlierSets(t *testing.T) {
	first, second := fixture.SidecarSet("a", fixture.Sidecar("a")), fixture.SidecarSet("b", fixture.Sidecar("b"))
	first.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{patch(v1alpha1.SidecarSetMergePatchJSONPolicy, map[string]string{"k": `{"a":1}`})}
	second.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{patch(v1alpha1.SidecarSetMergePatchJSONPolicy, map[string]string{"k": `{"b":2}`})}
	injected := injectInto(t, fixture.Pod(fixture.Container("app")), first, second)
	assert.Equal(t, `{"a":1,"b":2}`, injected.Annotations["k"])
}
