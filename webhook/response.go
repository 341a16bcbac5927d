package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// patched allows a request with changes; no operations, no changes.
func patched(operations []jsonpatch.Operation) admission.Response {
	encoded, err := json.Marshal(operations)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encode the patch: %w", err))
	}
	return allowedWith(encoded)
}

// allowedWith takes an encoded list of operations.
func allowedWith(patch []byte) admission.Response {
	response := admission.Allowed("")
	if string(patch) != "[]" && string(patch) != "null" {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &kind
	}
	return response
}
