package sidecarsets

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// written is a SidecarSet as the client wrote it.
type written struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
		Labels      map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// readWritten decodes the SidecarSet in raw, and returns the SidecarSet and its decoded spec.
func readWritten(raw []byte) (object written, spec any, err error) {
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return object, nil, fmt.Errorf("decode the raw object: %w", err)
	}
	spec, err = decodeJSON(object.Spec)
	return object, spec, err
}

// difference returns the patch from a raw SidecarSet to its completed form. Fields that the
// Go types do not have are kept (SPEC §1).
func difference(raw []byte, completed *v1alpha1.SidecarSet) ([]jsonpatch.Operation, error) {
	written, before, err := readWritten(raw)
	if err != nil {
		return nil, err
	}
	spec, err := completedSpec(written.Spec, before, completed)
	if err != nil {
		return nil, err
	}
	operations := jsonpatch.SetKeys("/metadata/annotations", written.Metadata.Annotations,
		changed(written.Metadata.Annotations, completed.Annotations, v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation))
	operations = append(operations, jsonpatch.SetKeys("/metadata/labels", written.Metadata.Labels,
		changed(written.Metadata.Labels, completed.Labels, v1alpha1.CustomVersionLabel))...)
	if !reflect.DeepEqual(spec, before) {
		operations = append(operations, jsonpatch.Add("/spec", spec))
	}
	owners, err := conversion.StoredOwnership(completed)
	if err != nil {
		return nil, err
	}
	if owners != nil {
		operations = append(operations, jsonpatch.Add("/metadata/managedFields", owners))
	}
	return operations, nil
}

// changed returns the completed values of the keys whose values differ.
func changed(written, completed map[string]string, keys ...string) map[string]string {
	found := map[string]string{}
	for _, key := range keys {
		if written[key] != completed[key] {
			found[key] = completed[key]
		}
	}
	return found
}

// completedSpec returns the spec of a completed SidecarSet as decoded JSON, with the unknown
// fields of the written spec. The caller passes the written spec both raw and decoded.
func completedSpec(raw json.RawMessage, written any, completed *v1alpha1.SidecarSet) (any, error) {
	encoded, err := json.Marshal(completed.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode the completed spec: %w", err)
	}
	spec, err := decodeJSON(encoded)
	if err != nil {
		return nil, err
	}
	if err := newValue(raw, reflect.TypeFor[v1alpha1.SidecarSetSpec]()).keepUnknown(spec); err != nil {
		return nil, err
	}
	dropGuessedSources(spec, written)
	return spec, nil
}

// decodeJSON decodes raw. Integers that fit into an int64 keep all digits. If raw is empty, decodeJSON
// returns nil.
func decodeJSON(raw []byte) (decoded any, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if err := utiljson.Unmarshal(raw, &decoded); err != nil {
		return nil, fmt.Errorf("decode the spec: %w", err)
	}
	return decoded, nil
}

// dropGuessedSources removes the emptyDir that the defaults add to a volume if the Go types lack the source of
// the volume.
func dropGuessedSources(spec, written any) {
	known := fieldTypes(reflect.TypeFor[corev1.Volume]())
	volumes, writtenVolumes := volumesOf(spec), volumesOf(written)
	for i := range min(len(volumes), len(writtenVolumes)) {
		volume, ok := volumes[i].(map[string]any)
		writtenVolume, wasObject := writtenVolumes[i].(map[string]any)
		if !ok || !wasObject || writtenVolume["emptyDir"] != nil {
			continue
		}
		for name := range writtenVolume {
			if known[name] == nil {
				delete(volume, "emptyDir")
			}
		}
	}
}

func volumesOf(spec any) []any {
	object, _ := spec.(map[string]any)
	volumes, _ := object["volumes"].([]any)
	return volumes
}
