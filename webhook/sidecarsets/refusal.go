package sidecarsets

import (
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
	if found := newValue(req.Object.Raw, reflect.TypeFor[v1alpha1.SidecarSet]()).typeErrors(); len(found) > 0 {
		return invalid(req.Name, validation.Causes(found))
	}
	return admission.Errored(http.StatusBadRequest, fmt.Errorf("read SidecarSet %s: %w", req.Name, err))
}

// unknownFields warns of what a SidecarSet keeps (SPEC §1) but pods do not get:
// fields of a newer Kubernetes, and misspelt ones.
func unknownFields(raw []byte) []string {
	var warnings []string
	for _, path := range newValue(raw, reflect.TypeFor[v1alpha1.SidecarSet]()).unknown() {
		warnings = append(warnings, fmt.Sprintf("unknown field %q: it is kept, but not injected", path))
	}
	return warnings
}
