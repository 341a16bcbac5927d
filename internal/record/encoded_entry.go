package record

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EncodedEntry is an entry that many pods get: all but its timestamp is encoded once.
type EncodedEntry struct {
	set string
	// quoted is the set's name in JSON; rest follows the timestamp.
	quoted, rest string
}

const timestampField = `{"updateTimestamp":`

// EncodeEntry prepares an entry for the set that it names.
func EncodeEntry(entry Entry) (EncodedEntry, error) {
	entry.UpdateTimestamp = metav1.Time{}
	encoded, err := json.Marshal(entry)
	if err != nil {
		return EncodedEntry{}, fmt.Errorf("encode the entry of %s: %w", entry.SidecarSetName, err)
	}
	quoted, err := json.Marshal(entry.SidecarSetName)
	if err != nil {
		return EncodedEntry{}, fmt.Errorf("encode the entry of %s: %w", entry.SidecarSetName, err)
	}
	rest := strings.TrimPrefix(string(encoded), timestampField+"null")
	return EncodedEntry{entry.SidecarSetName, string(quoted), rest}, nil
}

// WithEncoded is With for encoded entries, which are sorted by set, at a time.
func WithEncoded(annotations map[string]string, key string, entries []EncodedEntry, now metav1.Time) (string, error) {
	timestamp, err := now.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("encode the time of injection: %w", err)
	}
	if annotations[key] != "" {
		all := make(map[string]json.RawMessage, len(entries))
		for _, entry := range entries {
			all[entry.set] = json.RawMessage(timestampField + string(timestamp) + entry.rest)
		}
		return With(annotations, key, all)
	}
	var value strings.Builder
	value.Grow(encodedLength(entries, len(timestamp)))
	separator := "{"
	for _, entry := range entries {
		for _, part := range []string{separator, entry.quoted, ":", timestampField, string(timestamp), entry.rest} {
			value.WriteString(part)
		}
		separator = ","
	}
	value.WriteString("}")
	return value.String(), nil
}

func encodedLength(entries []EncodedEntry, timestamp int) int {
	length := len("{}")
	for _, entry := range entries {
		length += len(entry.quoted) + len(":,") + len(timestampField) + timestamp + len(entry.rest)
	}
	return length
}
