package record

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stamp is an entry that many pods get: all but its timestamp is encoded once.
type Stamp struct {
	set string
	// quoted is the set's name in JSON; rest follows the timestamp.
	quoted, rest string
}

const timestampField = `{"updateTimestamp":`

// NewStamp prepares an entry for the set that it names.
func NewStamp(entry Entry) (Stamp, error) {
	entry.UpdateTimestamp = metav1.Time{}
	encoded, err := json.Marshal(entry)
	if err != nil {
		return Stamp{}, fmt.Errorf("encode the entry of %s: %w", entry.SidecarSetName, err)
	}
	quoted, err := json.Marshal(entry.SidecarSetName)
	if err != nil {
		return Stamp{}, fmt.Errorf("encode the entry of %s: %w", entry.SidecarSetName, err)
	}
	rest := strings.TrimPrefix(string(encoded), timestampField+"null")
	return Stamp{entry.SidecarSetName, string(quoted), rest}, nil
}

// Stamped is With for prepared entries, which are sorted by set, at a time.
func Stamped(annotations map[string]string, key string, stamps []Stamp, now metav1.Time) (string, error) {
	timestamp, err := now.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("encode the time of injection: %w", err)
	}
	if annotations[key] != "" {
		entries := make(map[string]json.RawMessage, len(stamps))
		for _, stamp := range stamps {
			entries[stamp.set] = json.RawMessage(timestampField + string(timestamp) + stamp.rest)
		}
		return With(annotations, key, entries)
	}
	var value strings.Builder
	value.Grow(stampedLength(stamps, len(timestamp)))
	separator := "{"
	for _, stamp := range stamps {
		for _, part := range []string{separator, stamp.quoted, ":", timestampField, string(timestamp), stamp.rest} {
			value.WriteString(part)
		}
		separator = ","
	}
	value.WriteString("}")
	return value.String(), nil
}

func stampedLength(stamps []Stamp, timestamp int) int {
	length := len("{}")
	for _, stamp := range stamps {
		length += len(stamp.quoted) + len(":,") + len(timestampField) + timestamp + len(stamp.rest)
	}
	return length
}
