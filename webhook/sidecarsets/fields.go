package sidecarsets

import (
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// value is a JSON value in an object, with the Go type into which the value is decoded.
type value struct {
	raw json.RawMessage
	// goType is nil for a field that the Go types do not have.
	goType reflect.Type
	path   *field.Path
	// name is the key in the parent object. index is the position in the parent list.
	name  string
	index int
	// fields caches the fields of struct types.
	fields map[reflect.Type]map[string]reflect.Type
}

func newValue(raw []byte, t reflect.Type) value {
	return value{raw: raw, goType: t, fields: map[reflect.Type]map[string]reflect.Type{}}
}

// children yields the values of an object, ordered by name, or the values of a list. children yields
// nothing for a type that implements json.Unmarshaler, and for a value whose kind does not fit the type.
func (v value) children() iter.Seq[value] {
	return func(yield func(value) bool) {
		t := pointedAt(v.goType)
		switch {
		case t == nil || decodesItself(t):
		case t.Kind() == reflect.Slice:
			for i, raw := range decoded[[]json.RawMessage](v.raw) {
				if !yield(value{raw: raw, goType: t.Elem(), path: v.path.Index(i), index: i, fields: v.fields}) {
					return
				}
			}
		case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
			values := decoded[map[string]json.RawMessage](v.raw)
			for _, name := range slices.Sorted(maps.Keys(values)) {
				child := value{raw: values[name], name: name, fields: v.fields}
				if t.Kind() == reflect.Map {
					child.goType, child.path = t.Elem(), v.path.Key(name)
				} else {
					child.goType, child.path = v.fieldsOf(t)[name], v.path.Child(name)
				}
				if !yield(child) {
					return
				}
			}
		}
	}
}

func pointedAt(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func decodesItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// decoded decodes raw into a T. If the kind of the value does not fit T, decoded returns the zero value.
func decoded[T any](raw []byte) T {
	var value, none T
	if json.Unmarshal(raw, &value) != nil {
		return none
	}
	return value
}

func (v value) fieldsOf(t reflect.Type) map[string]reflect.Type {
	known := v.fields[t]
	if known == nil {
		known = fieldTypes(t)
		v.fields[t] = known
	}
	return known
}

// fieldTypes returns the types of the fields of t by JSON name, including the fields of inline structs.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			types[name] = f.Type
		}
	}
	return types
}

// typeErrors returns an error for each innermost value that does not decode into its type.
func (v value) typeErrors() field.ErrorList {
	if v.goType == nil {
		return nil
	}
	err := utiljson.Unmarshal(v.raw, reflect.New(v.goType).Interface())
	if err == nil {
		return nil
	}
	var found field.ErrorList
	for child := range v.children() {
		found = append(found, child.typeErrors()...)
	}
	if len(found) > 0 || v.path == nil {
		return found
	}
	return field.ErrorList{v.typeError(err)}
}

func (v value) typeError(err error) *field.Error {
	const longest = 64
	text := string(v.raw)
	if unquoted, unquoteErr := strconv.Unquote(text); unquoteErr == nil {
		text = unquoted
	}
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "..."
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return field.TypeInvalid(v.path, text, "want "+kindOf(mismatch.Type))
	}
	return field.Invalid(v.path, text, err.Error())
}

// kindOf returns the JSON name of a type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		return "list"
	}
	return t.Kind().String()
}

// unknown returns the paths of the fields that the Go types do not have.
func (v value) unknown() []*field.Path {
	if v.goType == nil {
		return []*field.Path{v.path}
	}
	var found []*field.Path
	for child := range v.children() {
		found = append(found, child.unknown()...)
	}
	return found
}

// keepUnknown copies the fields that the Go types do not have into the completed object,
// which is decoded JSON.
func (v value) keepUnknown(completed any) error {
	for child := range v.children() {
		if object, isObject := completed.(map[string]any); isObject && child.goType == nil {
			kept, err := decodeJSON(child.raw)
			if err != nil {
				return err
			}
			object[child.name] = kept
		} else if err := child.keepUnknown(child.within(completed)); err != nil {
			return err
		}
	}
	return nil
}

// within returns the corresponding value in a completed object or list, or nil.
func (v value) within(completed any) any {
	switch completed := completed.(type) {
	case map[string]any:
		return completed[v.name]
	case []any:
		if v.index < len(completed) {
			return completed[v.index]
		}
	}
	return nil
}
