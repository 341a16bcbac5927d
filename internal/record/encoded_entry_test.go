package record

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWithEncodedEntriesAreWrittenLikeAnyOther(t *testing.T) {
	const key = "entries"
	now := metav1.NewTime(time.Date(2024, 1, 2, 12, 0, 0, 5, time.FixedZone("CET", 3600)))
	entries := Entries{
		"a": {Hash: "<1>", SidecarSetName: "a", SidecarList: []string{"x", "y"}, ControllerRevision: "a-1"},
		"b": {Hash: "2", SidecarSetName: "b", SidecarList: []string{}},
	}
	var encoded []EncodedEntry
	for _, name := range []string{"a", "b"} {
		entry := entries[name]
		entry.UpdateTimestamp = metav1.Now()
		one, err := EncodeEntry(entry)
		require.NoError(t, err)
		encoded = append(encoded, one)
		entry.UpdateTimestamp = now
		entries[name] = entry
	}
	for _, existing := range []string{"", `{}`, `{"0":"older form","a":{"hash":"before"},"c":{"unknown": 1}}`} {
		annotations := map[string]string{key: existing}
		want, err := With(annotations, key, entries)
		require.NoError(t, err)
		value, err := WithEncoded(annotations, key, encoded, now)
		require.NoError(t, err)
		assert.Equal(t, want, value)
		assert.True(t, json.Valid([]byte(value)))
	}
	_, err := WithEncoded(map[string]string{key: "{"}, key, encoded, now)
	require.ErrorContains(t, err, "annotation entries")
}
