package view

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// ChangedFields returns the paths of the fields, except images, that differ between from and to. The
// differences prevent an upgrade in place (SPEC §2, hash without images).
func ChangedFields(from, to *v1alpha1.SidecarSetSpec) []string {
	found := changedFields("containers", from.Containers, to.Containers)
	if slices.ContainsFunc(slices.Concat(from.InitContainers, to.InitContainers), isNative) {
		found = append(found, changedFields("initContainers", from.InitContainers, to.InitContainers)...)
	}
	return found
}

func isNative(c v1alpha1.SidecarContainer) bool { return revision.IsNativeSidecar(&c.Container) }

func changedFields(list string, from, to []v1alpha1.SidecarContainer) []string {
	before, after := byName(from), byName(to)
	var found []string
	for _, name := range sets.List(sets.KeySet(before).Union(sets.KeySet(after))) {
		path := fmt.Sprintf("spec.%s[%s]", list, name)
		switch {
		case before[name] == nil:
			found = append(found, path+" (added)")
		case after[name] == nil:
			found = append(found, path+" (removed)")
		default:
			for _, field := range sets.List(sets.KeySet(before[name]).Union(sets.KeySet(after[name]))) {
				if field != "image" && !reflect.DeepEqual(before[name][field], after[name][field]) {
					found = append(found, path+"."+field)
				}
			}
		}
	}
	sameName := func(a, b v1alpha1.SidecarContainer) bool { return a.Name == b.Name }
	if len(found) == 0 && !slices.EqualFunc(from, to, sameName) {
		found = append(found, "the order of spec."+list)
	}
	return found
}

// byName returns the fields of each container by the name of the container.
func byName(containers []v1alpha1.SidecarContainer) map[string]map[string]any {
	all := map[string]map[string]any{}
	for i := range containers {
		// A decoded container can always be encoded.
		if fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&containers[i]); err == nil {
			all[containers[i].Name] = fields
		}
	}
	return all
}
