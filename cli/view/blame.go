package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// Blame names the fields, beside images, in which two versions differ: what keeps a pod
// of the one from becoming one of the other in place (SPEC §2, hash without images).
func Blame(from, to *v1alpha1.SidecarSetSpec) []string {
	found := differences("containers", from.Containers, to.Containers)
	if hasNative(from.InitContainers) || hasNative(to.InitContainers) {
		found = append(found, differences("initContainers", from.InitContainers, to.InitContainers)...)
	}
	return found
}

func hasNative(containers []v1alpha1.SidecarContainer) bool {
	return slices.ContainsFunc(containers, func(c v1alpha1.SidecarContainer) bool { return revision.IsNativeSidecar(&c.Container) })
}

func differences(list string, from, to []v1alpha1.SidecarContainer) []string {
	before, after := decoded(from), decoded(to)
	var found []string
	for _, name := range slices.Sorted(maps.Keys(merged(before, after))) {
		path := fmt.Sprintf("spec.%s[%s]", list, name)
		switch {
		case before[name] == nil:
			found = append(found, path+" (added)")
		case after[name] == nil:
			found = append(found, path+" (removed)")
		default:
			for _, field := range slices.Sorted(maps.Keys(merged(before[name], after[name]))) {
				if field != "image" && !reflect.DeepEqual(before[name][field], after[name][field]) {
					found = append(found, path+"."+field)
				}
			}
		}
	}
	if len(found) == 0 && !reflect.DeepEqual(names(from), names(to)) {
		found = append(found, "the order of spec."+list)
	}
	return found
}

func names(containers []v1alpha1.SidecarContainer) []string {
	all := make([]string, len(containers))
	for i := range containers {
		all[i] = containers[i].Name
	}
	return all
}

func decoded(containers []v1alpha1.SidecarContainer) map[string]map[string]any {
	all := map[string]map[string]any{}
	for i := range containers {
		fields := map[string]any{}
		// A container that was decoded can be encoded.
		data, err := json.Marshal(&containers[i])
		if err == nil {
			err = json.Unmarshal(data, &fields)
		}
		if err == nil {
			all[containers[i].Name] = fields
		}
	}
	return all
}

func merged[V any](a, b map[string]V) map[string]V {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}
