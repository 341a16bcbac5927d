package sidecarsets

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/validation"
)

// invalid refuses a SidecarSet the way the API server refuses its own objects:
// 422 with a cause for each field, which kubectl prints.
func invalid(name string, causes []metav1.StatusCause) admission.Response {
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "SidecarSet"}
	status := apierrors.NewInvalid(kind, name, nil).Status()
	status.Details.Causes = causes
	reasons := make([]string, len(causes))
	for i, cause := range causes {
		reasons[i] = cause.Field + ": " + cause.Message
	}
	status.Message += ": " + strings.Join(reasons, ", ")
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}

// unreadable refuses a SidecarSet that does not decode: a value of the wrong
// type, or one that does not parse, is its field's fault.
func unreadable(req *admission.Request, err error) admission.Response {
	if found := typeErrors(req.Object.Raw, reflect.TypeFor[v1alpha1.SidecarSet](), nil); len(found) > 0 {
		return invalid(req.Name, validation.Causes(found))
	}
	return admission.Errored(http.StatusBadRequest, fmt.Errorf("read SidecarSet %s: %w", req.Name, err))
}

// typeErrors returns the innermost values that do not decode into their types.
func typeErrors(raw []byte, t reflect.Type, at *field.Path) field.ErrorList {
	err := utiljson.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var found field.ErrorList
	if !decodesItself(t) {
		found = innerTypeErrors(raw, t, at)
	}
	if len(found) > 0 || at == nil {
		return found
	}
	return field.ErrorList{typeError(raw, at, err)}
}

func innerTypeErrors(raw []byte, t reflect.Type, at *field.Path) field.ErrorList {
	var found field.ErrorList
	switch t.Kind() {
	case reflect.Struct:
		types := fieldTypes(t)
		values := decoded[map[string]json.RawMessage](raw)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if known := types[name]; known != nil {
				found = append(found, typeErrors(values[name], known, at.Child(name))...)
			}
		}
	case reflect.Map:
		values := decoded[map[string]json.RawMessage](raw)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			found = append(found, typeErrors(values[key], t.Elem(), at.Key(key))...)
		}
	case reflect.Slice:
		for i, item := range decoded[[]json.RawMessage](raw) {
			found = append(found, typeErrors(item, t.Elem(), at.Index(i))...)
		}
	}
	return found
}

func decodesItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// decoded is empty when the value is of another kind.
func decoded[T any](raw []byte) T {
	var value T
	if json.Unmarshal(raw, &value) != nil {
		var none T
		return none
	}
	return value
}

func typeError(raw []byte, at *field.Path, err error) *field.Error {
	const longest = 64
	value := string(raw)
	if text, unquoteErr := strconv.Unquote(value); unquoteErr == nil {
		value = text
	}
	if len(value) > longest {
		value = value[:longest] + "..."
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return field.TypeInvalid(at, value, "want "+kindOf(mismatch.Type))
	}
	return field.Invalid(at, value, err.Error())
}

// kindOf calls a type as JSON does.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		return "list"
	}
	return t.Kind().String()
}
