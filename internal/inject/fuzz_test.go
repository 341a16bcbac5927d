package inject_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/validation"
)

// FuzzInjection injects any valid SidecarSet into any pod. If the injection succeeds, the patched pod has no
// unknown fields and has all containers of the SidecarSet. If the injection fails, the error names the
// SidecarSet or an annotation.
func FuzzInjection(f *testing.F) {
	for _, seed := range []string{"", "drawn", "\x05\x02\x01\x00\x03\x01\x02\x03\x00\x01\x02\x03\x04\x05\x06\x07"} {
		f.Add([]byte(seed))
	}
	now := metav1.NewTime(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, set := fixture.Draw(data)
		defaults.Write(set)
		if len(validation.Validate(set)) > 0 {
			return
		}
		prepared, err := inject.Prepare(set, "revision")
		require.NoError(t, err)
		sent, err := json.Marshal(pod)
		require.NoError(t, err)
		injection, err := inject.Pod(pod, []*inject.Set{prepared}, now)
		if err != nil {
			assert.Regexp(t, "^(SidecarSet drawn: |annotation )", err.Error())
			return
		}
		injected := apply(t, sent, injection)
		assert.Subset(t, names(injected.Spec.Containers), wanted(set.Spec.Containers))
		assert.Subset(t, names(injected.Spec.InitContainers), wanted(set.Spec.InitContainers))
	})
}

// FuzzTwoSets injects two SidecarSets into any pod. Admission does not compare SidecarSets that are created at
// the same time. Container names and volume names must be unique in the result, or the error must name the
// cause.
func FuzzTwoSets(f *testing.F) {
	f.Add([]byte("one"), []byte("another"))
	f.Add([]byte("\x05\x02\x01\x00\x03\x01\x02\x03"), []byte("\x00\x01\x02\x03\x04\x05\x06\x07"))
	now := metav1.NewTime(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		pod, a := fixture.Draw(first)
		_, b := fixture.Draw(second)
		if !unique(pod) {
			return
		}
		b.Name = "other"
		var sets []*inject.Set
		for _, set := range []*v1alpha1.SidecarSet{a, b} {
			defaults.Write(set)
			if len(validation.Validate(set)) > 0 {
				return
			}
			prepared, err := inject.Prepare(set, "revision")
			require.NoError(t, err)
			sets = append(sets, prepared)
		}
		sent, err := json.Marshal(pod)
		require.NoError(t, err)
		injection, err := inject.Pod(pod, sets, now)
		if err != nil {
			assert.Regexp(t, "^(SidecarSet (drawn|other)|annotation )", err.Error())
			return
		}
		assert.True(t, unique(apply(t, sent, injection)))
	})
}

// unique reports whether the names of containers and the names of volumes are unique within a pod.
func unique(pod *corev1.Pod) bool {
	containers := append(names(pod.Spec.Containers), names(pod.Spec.InitContainers)...)
	volumes := make([]string, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		volumes[i] = pod.Spec.Volumes[i].Name
	}
	for _, all := range [][]string{containers, volumes} {
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) != len(all) {
			return false
		}
	}
	return true
}

func apply(t *testing.T, document []byte, injection *inject.Injection) *corev1.Pod {
	encoded, err := json.Marshal(injection.Patch())
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(encoded)
	require.NoError(t, err)
	document, err = patch.Apply(document)
	require.NoError(t, err)
	injected := &corev1.Pod{}
	strict := json.NewDecoder(bytes.NewReader(document))
	strict.DisallowUnknownFields()
	require.NoError(t, strict.Decode(injected))
	return injected
}

func names(containers []corev1.Container) []string {
	all := make([]string, len(containers))
	for i := range containers {
		all[i] = containers[i].Name
	}
	return all
}

func wanted(sidecars []v1alpha1.SidecarContainer) []string {
	all := []string{}
	for _, s := range sidecars {
		if s.UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
			all = append(all, s.Name+"-1", s.Name+"-2")
		} else {
			all = append(all, s.Name)
		}
	}
	return slices.Clip(all)
}

// FuzzPatchMetadata checks that the result of a merge is JSON and that other annotations do not
// change.
func FuzzPatchMetadata(f *testing.F) {
	f.Add(`{"a":1}`, `{"a":null,"b":{"c":[1.0,2e3]}}`, true)
	f.Add("", `[1]`, false)
	f.Add(`not JSON`, `{"a":"<"}`, true)
	f.Fuzz(func(t *testing.T, before, value string, exists bool) {
		annotations := map[string]string{"other": "kept"}
		if exists {
			annotations["key"] = before
		}
		for _, policy := range []v1alpha1.SidecarSetPatchPolicyType{
			v1alpha1.SidecarSetRetainPatchPolicy, v1alpha1.SidecarSetOverwritePatchPolicy, v1alpha1.SidecarSetMergePatchJSONPolicy,
		} {
			changes, err := inject.PatchMetadata(annotations, []v1alpha1.SidecarSetPatchPodMetadata{
				{Annotations: map[string]string{"key": value}, PatchPolicy: policy},
			})
			if err != nil {
				assert.Equal(t, v1alpha1.SidecarSetMergePatchJSONPolicy, policy)
				assert.ErrorContains(t, err, "patchPodMetadata: annotation key: ")
				continue
			}
			after, changed := changes["key"]
			assert.Equal(t, changed, len(changes) == 1)
			if policy == v1alpha1.SidecarSetMergePatchJSONPolicy && changed {
				assert.True(t, json.Valid([]byte(after)), after)
			}
		}
	})
}
