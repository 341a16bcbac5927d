package jsonpatch

import (
	"encoding/json"
	"testing"

	evanphx "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPointersLeadToKeysOfAnyCharacters(t *testing.T) {
	for _, key := range []string{"plain", "a/b", "a~b", "~1", "~0/", "a~1b/c", "-", "", "ü\"\\"} {
		operations, err := json.Marshal([]Operation{{Op: "add", Path: Pointer("metadata", "annotations", key), Value: "new"}})
		require.NoError(t, err)
		patch, err := evanphx.DecodePatch(operations)
		require.NoError(t, err, key)
		after, err := patch.Apply([]byte(`{"metadata":{"annotations":{"other":"stays"}}}`))
		require.NoError(t, err, key)
		var got struct {
			Metadata struct{ Annotations map[string]string }
		}
		require.NoError(t, json.Unmarshal(after, &got))
		assert.Equal(t, map[string]string{"other": "stays", key: "new"}, got.Metadata.Annotations)
	}
	assert.Equal(t, "/spec/containers/0", Pointer("spec", "containers", "0"))
}

func TestMissingMapsAndListsAreAddedAsAWhole(t *testing.T) {
	changed := map[string]string{"b/c": "2", "a": "1"}
	assert.Empty(t, SetKeys("/m", nil, nil))
	assert.Equal(t, []Operation{{"add", "/m", changed}}, SetKeys("/m", nil, changed))
	assert.Equal(t, []Operation{{"add", "/m/a", "1"}, {"add", "/m/b~1c", "2"}}, SetKeys("/m", map[string]string{"x": "y"}, changed))
	assert.Empty(t, Append[int]("/l", 1, nil))
	assert.Equal(t, []Operation{{"add", "/l", []int{1, 2}}}, Append("/l", 0, []int{1, 2}))
	assert.Equal(t, []Operation{{"add", "/l/-", 1}, {"add", "/l/-", 2}}, Append("/l", 3, []int{1, 2}))
}
