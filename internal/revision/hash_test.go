package revision

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// The recorded SidecarSets have the hashes that existing clusters store.
func TestSpec2_HashesEqualRecordedOnes(t *testing.T) {
	files, err := filepath.Glob("../../test/conformance/expected/*.json")
	require.NoError(t, err)
	compared := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var steps []struct {
			SidecarSet *struct {
				Annotations map[string]string       `json:"annotations"`
				Spec        v1alpha1.SidecarSetSpec `json:"spec"`
			} `json:"sidecarSet"`
		}
		require.NoError(t, json.Unmarshal(raw, &steps), file)
		for _, step := range steps {
			if step.SidecarSet == nil {
				continue
			}
			hash, err := Hash(&step.SidecarSet.Spec)
			require.NoError(t, err)
			assert.Equal(t, step.SidecarSet.Annotations[v1alpha1.HashAnnotation], hash, file)
			blank, err := HashWithoutImage(&step.SidecarSet.Spec)
			require.NoError(t, err)
			assert.Equal(t, step.SidecarSet.Annotations[v1alpha1.HashWithoutImageAnnotation], blank, file)
			compared++
		}
	}
	assert.Greater(t, compared, 20)
}

// The stored form omits an empty list.
func TestSpec2_AnEmptyListHasTheHashOfItsStoredForm(t *testing.T) {
	spec := v1alpha1.SidecarSetSpec{Containers: []v1alpha1.SidecarContainer{}}
	for _, hash := range []func(*v1alpha1.SidecarSetSpec) (string, error){Hash, HashWithoutImage} {
		empty, err := hash(&spec)
		require.NoError(t, err)
		missing, err := hash(&v1alpha1.SidecarSetSpec{})
		require.NoError(t, err)
		assert.Equal(t, missing, empty)
	}
}
