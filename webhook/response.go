package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
)

// patched allows a request with changes; no operations, no changes.
func patched(operations []inject.Operation) admission.Response {
	response := admission.Allowed("")
	if len(operations) == 0 {
		return response
	}
	encoded, err := json.Marshal(operations)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encode the patch: %w", err))
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = encoded, &kind
	return response
}

// invalid refuses a SidecarSet the way the API server refuses its own objects:
// 422 with a cause for each field, which kubectl prints.
func invalid(name string, errs field.ErrorList) admission.Response {
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "SidecarSet"}
	status := apierrors.NewInvalid(kind, name, errs).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}

// unreadable refuses a SidecarSet that does not decode: a value of the wrong
// type is the field's fault.
func unreadable(name string, err error) admission.Response {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read SidecarSet %s: %w", name, err))
	}
	return invalid(name, field.ErrorList{
		field.TypeInvalid(field.NewPath(mismatch.Field), mismatch.Value, "want "+mismatch.Type.String()),
	})
}
