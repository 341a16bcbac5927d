package review

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// Patched allows a request with changes; no operations, no changes.
func Patched(operations []jsonpatch.Operation) admission.Response {
	encoded, err := json.Marshal(operations)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encode the patch: %w", err))
	}
	response := admission.Allowed("")
	if len(operations) > 0 {
		response.Patch, response.PatchType = encoded, new(admissionv1.PatchTypeJSONPatch)
	}
	return response
}
