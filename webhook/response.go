package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

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
