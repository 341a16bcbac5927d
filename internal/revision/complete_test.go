package revision

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
)

// recordedSet returns a SidecarSet as stored by OpenKruise, and the manifest of the user.
func recordedSet(t *testing.T, name string) (stored, written *v1alpha1.SidecarSet) {
	t.Helper()
	answers, err := os.ReadFile("../../test/conformance/expected/" + name + ".json")
	require.NoError(t, err)
	var steps []struct {
		SidecarSet struct {
			Annotations map[string]string       `json:"annotations"`
			Spec        v1alpha1.SidecarSetSpec `json:"spec"`
		} `json:"sidecarSet"`
	}
	require.NoError(t, json.Unmarshal(answers, &steps))
	stored = &v1alpha1.SidecarSet{Spec: steps[0].SidecarSet.Spec}
	stored.Name, stored.Annotations = "s1", steps[0].SidecarSet.Annotations

	asked, err := os.ReadFile("../../test/conformance/cases/" + name + ".yaml")
	require.NoError(t, err)
	var recorded struct {
		Steps []struct{ SidecarSet *v1alpha1.SidecarSet }
	}
	require.NoError(t, yaml.Unmarshal(asked, &recorded))
	return stored, recorded.Steps[0].SidecarSet
}

// kubectl apply sends all containers again, without the defaults.
func TestSpec5_ApplyingOnlyAPauseKeepsTheRecordedVersion(t *testing.T) {
	for _, name := range []string{"hash-startup-nofail", "hash-grpc-liveness", "container-defaults", "native-sidecar"} {
		stored, applied := recordedSet(t, name)
		applied.Spec.UpdateStrategy.Paused = true
		require.NoError(t, Complete(applied, stored))
		assert.Equal(t, stored.Annotations, applied.Annotations, name)
		assert.Equal(t, stored.Spec.Containers, applied.Spec.Containers, name)
		assert.Equal(t, stored.Spec.InitContainers, applied.Spec.InitContainers, name)
	}
}

// Earlier releases stored startup probes and the service of gRPC probes with the defaults of pods. Manifests
// do not contain these defaults.
func TestSpec7_2_AVersionReachesThePodsOfEarlierReleases(t *testing.T) {
	for name, differs := range map[string]bool{"hash-startup-nofail": true, "hash-grpc-liveness": true, "container-defaults": false} {
		_, written := recordedSet(t, name)
		stored := written.DeepCopy()
		defaults.Write(stored)
		stored.Spec.Containers = defaults.PodProbes(stored.Spec.Containers)
		require.NoError(t, WriteHashes(stored))

		paused := stored.DeepCopy()
		paused.Spec.UpdateStrategy.Paused = true
		require.NoError(t, Complete(paused, stored))
		assert.Equal(t, stored.Annotations, paused.Annotations, "%s: a patch leaves the version alone", name)

		applied := written.DeepCopy()
		applied.Spec.Containers[0].Image = "another:v1"
		require.NoError(t, Complete(applied, stored))
		held, own := stored.Annotations[v1alpha1.HashWithoutImageAnnotation], applied.Annotations[v1alpha1.HashWithoutImageAnnotation]
		former, err := FormerHashWithoutImage(&applied.Spec)
		require.NoError(t, err)
		if assert.Equal(t, differs, held != own, name); differs {
			assert.Equal(t, held, former, name)
		} else {
			assert.Empty(t, former, name)
		}
	}
}

func TestSpec2_AnnotationsOfASetAreOutputs(t *testing.T) {
	admitted, written := recordedSet(t, "container-defaults")
	same, err := Completed(admitted)
	require.NoError(t, err)
	assert.Same(t, admitted, same, "what admission stored is complete")

	edited := written.DeepCopy()
	edited.Spec.Containers[0].Image = "busybox:1.37"
	want := edited.DeepCopy()
	require.NoError(t, Complete(want, nil))
	for name, claimed := range map[string]map[string]string{
		"never hashed":                nil,
		"those of the content before": admitted.Annotations,
		"damaged":                     {v1alpha1.HashAnnotation: "", v1alpha1.HashWithoutImageAnnotation: "x"},
	} {
		stored := edited.DeepCopy()
		stored.Annotations = claimed
		before := stored.DeepCopy()
		completed, err := Completed(stored)
		require.NoError(t, err)
		assert.Equal(t, want.Annotations, completed.Annotations, name)
		assert.Equal(t, want.Spec, completed.Spec, "%s: defaults are missing, too", name)
		assert.Equal(t, before, stored, "%s: the cache's own stays", name)
		assert.False(t, HaveOwnHashes(stored, completed), name)

		again, err := Completed(completed)
		require.NoError(t, err)
		assert.Same(t, completed, again, name)
	}

	older := admitted.DeepCopy()
	older.Spec.Containers[0].PodInjectPolicy = "" // earlier releases did not write this default
	require.NoError(t, WriteHashes(older))
	hash := older.Annotations[v1alpha1.HashAnnotation]
	older.Annotations[v1alpha1.HashWithoutImageAnnotation] = "damaged"
	completed, err := Completed(older)
	require.NoError(t, err)
	assert.Equal(t, hash, completed.Annotations[v1alpha1.HashAnnotation], "what is hashed as it is keeps its form")
	assert.Equal(t, older.Spec, completed.Spec)
	assert.NotEqual(t, "damaged", completed.Annotations[v1alpha1.HashWithoutImageAnnotation])
}
