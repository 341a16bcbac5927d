// Package actions implements the admission of RolloutActions, which sets the user of a RolloutAction.
package actions

import (
	"context"
	"fmt"
	"net/http"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/jsonpatch"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
)

// Size returns the limits of a review of a RolloutAction.
func Size() server.Size {
	return server.Size{Bytes: 1 << 20, Values: 20_000, PerByte: 4, PerValue: 1000}
}

// SetUser sets spec.requestedBy to the user that the API server has authenticated (SPEC 11.13.2). SetUser
// replaces any value that the client sent. SetUser does not change an action without a spec, because the
// CustomResourceDefinition requires a spec.
func SetUser(_ context.Context, req admission.Request) admission.Response {
	var written struct {
		Spec map[string]any `json:"spec"`
	}
	if err := utiljson.Unmarshal(req.Object.Raw, &written); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the RolloutAction: %w", err))
	}
	if written.Spec == nil {
		return review.Patched(nil)
	}
	return review.Patched([]jsonpatch.Operation{jsonpatch.Add("/spec/requestedBy", req.UserInfo.Username)})
}
