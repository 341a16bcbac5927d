package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// volume is encoded once for all pods.
type volume struct {
	name    string
	encoded json.RawMessage
}

func newVolume(source *corev1.Volume) (volume, error) {
	encoded, err := json.Marshal(source)
	if err != nil {
		return volume{}, fmt.Errorf("encode volume %s: %w", source.Name, err)
	}
	return volume{source.Name, encoded}, nil
}

func encodings(volumes []volume) []json.RawMessage {
	encoded := make([]json.RawMessage, len(volumes))
	for i := range volumes {
		encoded[i] = volumes[i].encoded
	}
	return encoded
}

// appendValue encodes what an operation adds.
func appendValue(into []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case *addition:
		return value.append(into)
	case []*addition:
		return appendEach(into, value)
	case json.RawMessage:
		return append(into, value...), nil
	case []json.RawMessage:
		return appendEach(into, value)
	case string:
		return appendString(into, value)
	case map[string]string:
		return appendMap(into, value)
	}
	return appendJSON(into, value)
}

func appendEach[E any](into []byte, list []E) ([]byte, error) {
	opening := byte('[')
	for _, one := range list {
		var err error
		if into, err = appendValue(append(into, opening), one); err != nil {
			return nil, err
		}
		opening = ','
	}
	return append(into, ']'), nil
}

func appendMap(into []byte, value map[string]string) ([]byte, error) {
	opening := byte('{')
	for _, key := range slices.Sorted(maps.Keys(value)) {
		var err error
		if into, err = appendString(append(into, opening), key); err != nil {
			return nil, err
		}
		if into, err = appendString(append(into, ':'), value[key]); err != nil {
			return nil, err
		}
		opening = ','
	}
	return append(into, '}'), nil
}

// appendString writes a backslash before quotes and backslashes; printable
// ASCII, which nearly all strings are, needs no more.
func appendString(into []byte, value string) ([]byte, error) {
	for i := range len(value) {
		if value[i] < ' ' || value[i] >= utf8.RuneSelf {
			return appendJSON(into, value)
		}
	}
	into = append(into, '"')
	written := 0
	for i := range len(value) {
		if value[i] == '"' || value[i] == '\\' {
			into = append(append(into, value[written:i]...), '\\')
			written = i
		}
	}
	return append(append(into, value[written:]...), '"'), nil
}

func appendJSON(into []byte, value any) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return append(into, encoded...), nil
}
