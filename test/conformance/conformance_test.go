package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The recorded responses come from OpenKruise. The test asserts that SidecarSets are stored with the same
// defaults, that hashes are equal, and that pods get the same containers.
func TestRecordedCasesAreAnsweredTheSame(t *testing.T) {
	files, err := filepath.Glob("cases/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	rejected := readRejections(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			want := readAnswers(t, filepath.Join("expected", name+".json"))
			got := replay(t, file)
			require.Len(t, got, len(want))
			for i := range want {
				if want[i]["allowed"] == false {
					reason, known := rejected[name][i]
					require.True(t, known, "step %d: rejections.yaml does not say what for", i)
					assertRejection(t, reason, got[i], "step %d: want a rejection like %v", i, want[i]["message"])
					continue
				}
				assert.Equal(t, want[i], got[i], "step %d", i)
			}
		})
	}
}

func assertRejection(t *testing.T, reason any, got answer, message ...any) {
	t.Helper()
	if fields, ok := reason.([]any); ok && len(fields) == 0 {
		assert.Equal(t, true, got["allowed"], message...)
		return
	}
	require.NotEmpty(t, reason, message...)
	assert.Equal(t, answer{"allowed": false, "for": reason}, got, message...)
}

type answer = map[string]any

func readAnswers(t *testing.T, file string) []answer {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var answers []answer
	require.NoError(t, json.Unmarshal(raw, &answers))
	return answers
}

// readRejections returns the fields of the expected rejections, by case and step. The messages are not
// compared, because OpenKruise and Outrigger have different messages.
func readRejections(t *testing.T) map[string]map[int]any {
	raw, err := os.ReadFile("rejections.yaml")
	require.NoError(t, err)
	var rejected map[string]map[int]any
	require.NoError(t, yaml.UnmarshalStrict(raw, &rejected))
	return rejected
}

// plain returns the decoded JSON form of a value.
func plain(t *testing.T, value any) any {
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	var decoded any
	require.NoError(t, json.Unmarshal(raw, &decoded))
	return decoded
}
