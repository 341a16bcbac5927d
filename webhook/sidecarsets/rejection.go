package sidecarsets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/validation"
)

// invalid rejects a SidecarSet in the same way as the API server rejects invalid objects. The
// response has status 422, and a cause for each field. kubectl prints these causes.
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

// undecodable rejects a SidecarSet that cannot be decoded, with a cause for each field with a value of the
// wrong type. undecodable allows updates that do not change the spec, so that finalizers can be removed
// from invalid stored objects.
func undecodable(req *admission.Request, err error) admission.Response {
	if keepsSpec(req) {
		return admission.Allowed("")
	}
	if found := newValue(req.Object.Raw, reflect.TypeFor[v1alpha1.SidecarSet]()).typeErrors(); len(found) > 0 {
		return invalid(req.Name, validation.Causes(found))
	}
	return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode SidecarSet %s: %w", req.Name, err))
}

// keepsSpec reports whether the request is an update without a change of the spec.
func keepsSpec(req *admission.Request) bool {
	var written, stored struct{ Spec any }
	return req.Operation == admissionv1.Update && json.Unmarshal(req.Object.Raw, &written) == nil &&
		json.Unmarshal(req.OldObject.Raw, &stored) == nil && reflect.DeepEqual(written, stored)
}

// unknownFields returns a warning for each unknown field. An unknown field exists only in a newer version of
// Kubernetes, or is misspelled. SidecarSets keep the field (SPEC §1), but the field is not injected into pods.
func unknownFields(raw []byte) []string {
	var warnings []string
	for _, path := range newValue(raw, reflect.TypeFor[v1alpha1.SidecarSet]()).unknown() {
		warnings = append(warnings, fmt.Sprintf("unknown field %q: it is kept, but not injected", path))
	}
	return warnings
}
