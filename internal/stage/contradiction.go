package stage

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Contradiction returns the key of a label whose requirements exclude each other, such as tier in
// tier=edge,tier=core. A selector with such requirements selects nothing. The result is empty if there is no
// such label.
func Contradiction(requirements labels.Requirements) string {
	allowed, absent, required := map[string]sets.Set[string]{}, sets.New[string](), sets.New[string]()
	for i := range requirements {
		key, values := requirements[i].Key(), sets.New(requirements[i].Values().UnsortedList()...)
		switch requirements[i].Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if before, ok := allowed[key]; ok {
				values = values.Intersection(before)
			}
			allowed[key] = values
			required.Insert(key)
		case selection.Exists:
			required.Insert(key)
		case selection.DoesNotExist:
			absent.Insert(key)
		}
	}
	for i := range requirements {
		if key := requirements[i].Key(); requirements[i].Operator() == selection.NotIn || requirements[i].Operator() == selection.NotEquals {
			if values, ok := allowed[key]; ok {
				allowed[key] = values.Difference(sets.New(requirements[i].Values().UnsortedList()...))
			}
		}
	}
	for i := range requirements {
		key := requirements[i].Key()
		values, limited := allowed[key]
		if limited && values.Len() == 0 || required.Has(key) && absent.Has(key) {
			return key
		}
	}
	return ""
}
