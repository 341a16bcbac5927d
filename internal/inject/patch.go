package inject

import (
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// Patch returns the steps that turn the pod into the injected one; none when
// nothing is injected. Only what is added is written, so that fields of the pod
// that this program does not know survive.
func (i *Injection) Patch() []jsonpatch.Operation {
	operations := annotationPatch(i.pod.Annotations, i.changed)
	operations = append(operations, i.initContainers.patch("/spec/initContainers")...)
	operations = append(operations, i.containers.patch("/spec/containers")...)
	operations = append(operations, appendPatch("/spec/volumes", len(i.pod.Spec.Volumes), i.volumes)...)
	return append(operations, appendPatch("/spec/imagePullSecrets", len(i.pod.Spec.ImagePullSecrets), i.pullSecrets)...)
}

func annotationPatch(existing, changed map[string]string) []jsonpatch.Operation {
	if len(changed) == 0 {
		return nil
	}
	if len(existing) == 0 {
		return []jsonpatch.Operation{{Op: "add", Path: jsonpatch.Pointer("metadata", "annotations"), Value: changed}}
	}
	operations := make([]jsonpatch.Operation, 0, len(changed))
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		operations = append(operations, jsonpatch.Operation{Op: "add", Path: jsonpatch.Pointer("metadata", "annotations", key), Value: changed[key]})
	}
	return operations
}

func (p *insertions) patch(path string) []jsonpatch.Operation {
	if len(p.existing) == 0 {
		return appendPatch(path, 0, slices.Concat(p.before, p.after))
	}
	var operations []jsonpatch.Operation
	for _, index := range slices.Sorted(maps.Keys(p.replaced)) {
		operations = append(operations, jsonpatch.Operation{Op: "replace", Path: fmt.Sprintf("%s/%d", path, index), Value: p.replaced[index]})
	}
	for index, container := range p.before {
		operations = append(operations, jsonpatch.Operation{Op: "add", Path: fmt.Sprintf("%s/%d", path, index), Value: container})
	}
	return append(operations, appendPatch(path, len(p.existing), p.after)...)
}

func appendPatch[T any](path string, existing int, injected []T) []jsonpatch.Operation {
	switch {
	case len(injected) == 0:
		return nil
	case existing == 0:
		return []jsonpatch.Operation{{Op: "add", Path: path, Value: injected}}
	}
	operations := make([]jsonpatch.Operation, len(injected))
	for index := range injected {
		operations[index] = jsonpatch.Operation{Op: "add", Path: path + "/-", Value: injected[index]}
	}
	return operations
}
