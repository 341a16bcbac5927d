package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The recorded answers are those that clusters in use have had so far: sets are
// stored the same, hashes come out the same, pods get the same containers.
func TestRecordedCasesAreAnsweredTheSame(t *testing.T) {
	files, err := filepath.Glob("cases/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			want := readAnswers(t, filepath.Join("expected", name+".json"))
			got := replay(t, file)
			require.Len(t, got, len(want))
			for i := range want {
				if want[i]["allowed"] == false {
					assert.Equal(t, false, got[i]["allowed"], "step %d: want a refusal like %v", i, want[i]["message"])
					continue
				}
				assert.Equal(t, want[i], got[i], "step %d", i)
			}
		})
	}
}

type answer = map[string]any

func readAnswers(t *testing.T, file string) []answer {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var answers []answer
	require.NoError(t, json.Unmarshal(raw, &answers))
	return answers
}

// plain is the JSON form of a value.
func plain(t *testing.T, value any) any {
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	var decoded any
	require.NoError(t, json.Unmarshal(raw, &decoded))
	return decoded
}
