package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// PatchMetadata returns the annotations that patchPodMetadata changes, with their new values (SPEC §4.9).
// PatchMetadata does not change annotations. If MergePatchJson cannot parse a value as JSON, PatchMetadata
// returns an error that names the key of the value.
func PatchMetadata(annotations map[string]string, patches []v1alpha1.SidecarSetPatchPodMetadata) (map[string]string, error) {
	changes := map[string]string{}
	for i := range patches {
		for _, key := range slices.Sorted(maps.Keys(patches[i].Annotations)) {
			old, exists := changes[key]
			if !exists {
				old, exists = annotations[key]
			}
			value, err := patched(patches[i].PatchPolicy, old, exists, patches[i].Annotations[key])
			if err != nil {
				return nil, fmt.Errorf("patchPodMetadata: annotation %s: %w", key, err)
			}
			if !exists || value != old {
				changes[key] = value
			}
		}
	}
	return changes, nil
}

func patched(policy v1alpha1.SidecarSetPatchPolicyType, old string, exists bool, value string) (string, error) {
	switch policy {
	case v1alpha1.SidecarSetOverwritePatchPolicy:
		return value, nil
	case v1alpha1.SidecarSetMergePatchJSONPolicy:
		return mergeJSON(old, exists, value)
	}
	if exists {
		return old, nil
	}
	return value, nil
}

// mergeJSON applies a JSON merge patch (RFC 7396) to document, or returns patch if exists is false. Numbers
// keep their digits. A document without changes keeps its format.
func mergeJSON(document string, exists bool, patch string) (string, error) {
	change, err := decodeJSON(patch)
	if err != nil {
		return "", fmt.Errorf("the SidecarSet's value is not JSON: %w", err)
	}
	if !exists {
		return patch, nil
	}
	current, err := decodeJSON(document)
	if err != nil {
		return "", fmt.Errorf("the pod's value is not JSON: %w", err)
	}
	before, err := encodeJSON(current)
	if err != nil {
		return "", err
	}
	after, err := encodeJSON(mergePatch(current, change))
	if err != nil {
		return "", err
	}
	if after == before {
		return document, nil
	}
	return after, nil
}

// mergePatch applies patch to target with the algorithm of RFC 7396, section 2. mergePatch may change
// target.
func mergePatch(target, patch any) any {
	changes, isObject := patch.(map[string]any)
	if !isObject {
		return patch
	}
	merged, isObject := target.(map[string]any)
	if !isObject {
		merged = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(merged, key)
		} else {
			merged[key] = mergePatch(merged[key], value)
		}
	}
	return merged
}

func decodeJSON(text string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return value, nil
}

func encodeJSON(value any) (string, error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", fmt.Errorf("encode merged JSON: %w", err)
	}
	return strings.TrimSuffix(encoded.String(), "\n"), nil
}
