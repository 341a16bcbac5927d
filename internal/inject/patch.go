package inject

import (
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// Patch returns the operations of the injection, or no operation if nothing is injected. Each operation adds or
// replaces only one value, so unknown fields of the pod are preserved.
func (i *Injection) Patch() []jsonpatch.Operation {
	operations := jsonpatch.SetKeys("/metadata/annotations", i.pod.Annotations, i.changed)
	operations = append(operations, i.initContainers.patch("/spec/initContainers")...)
	operations = append(operations, i.containers.patch("/spec/containers")...)
	operations = append(operations, jsonpatch.Append("/spec/volumes", len(i.pod.Spec.Volumes), i.volumes)...)
	operations = append(operations, jsonpatch.Append("/spec/imagePullSecrets", len(i.pod.Spec.ImagePullSecrets), i.pullSecrets)...)
	return append(operations, i.podRequests()...)
}

func (p *insertions) patch(path string) []jsonpatch.Operation {
	if len(p.existing) == 0 {
		return jsonpatch.Append(path, 0, slices.Concat(p.before, p.after))
	}
	var operations []jsonpatch.Operation
	for _, index := range slices.Sorted(maps.Keys(p.replaced)) {
		operations = append(operations, jsonpatch.Operation{Op: "replace", Path: fmt.Sprintf("%s/%d", path, index), Value: p.replaced[index]})
	}
	for index, container := range p.before {
		operations = append(operations, jsonpatch.Add(fmt.Sprintf("%s/%d", path, index), container))
	}
	return append(operations, jsonpatch.Append(path, len(p.existing), p.after)...)
}
