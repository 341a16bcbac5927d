package record

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EncodedEntry is an encoded entry that is written into many pods. Only the timestamp is encoded for each pod.
type EncodedEntry struct {
	// set is the name of the SidecarSet. key is this name in JSON, followed by a colon.
	set, key string
	// rest is the JSON after the timestamp.
	rest string
}

const timestampField = `{"updateTimestamp":`

// EncodeEntry encodes an entry. entry.SidecarSetName must be set.
func EncodeEntry(entry Entry) (EncodedEntry, error) {
	entry.UpdateTimestamp = metav1.Time{}
	encoded, err := json.Marshal(map[string]Entry{entry.SidecarSetName: entry})
	if err != nil {
		return EncodedEntry{}, fmt.Errorf("encode the entry of %s: %w", entry.SidecarSetName, err)
	}
	key, rest, _ := strings.Cut(strings.TrimSuffix(string(encoded[1:]), "}"), timestampField+"null")
	return EncodedEntry{entry.SidecarSetName, key, rest}, nil
}

// WithEncoded returns the same value as With, for entries that are already encoded. now is the timestamp of the
// entries. The entries must be sorted by SidecarSet.
func WithEncoded(annotations map[string]string, key string, entries []EncodedEntry, now metav1.Time) (string, error) {
	timestamp, err := now.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("encode the time of injection: %w", err)
	}
	before := timestampField + string(timestamp)
	if annotations[key] != "" {
		all := make(map[string]json.RawMessage, len(entries))
		for _, entry := range entries {
			all[entry.set] = json.RawMessage(before + entry.rest)
		}
		return With(annotations, key, all)
	}
	parts := make([]string, 0, 4*len(entries)+1)
	separator := "{"
	for _, entry := range entries {
		parts = append(parts, separator, entry.key, before, entry.rest)
		separator = ","
	}
	return strings.Join(append(parts, "}"), ""), nil
}
