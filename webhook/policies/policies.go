// Package policies validates RolloutPolicies.
package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/internal/policy"
	"github.com/outrigger/outrigger/webhook/server"
)

// Size returns the limits of a review of a RolloutPolicy. The review of an update also contains the stored
// policy.
func Size() server.Size {
	return server.Size{Bytes: 2 << 20, Values: 40_000, PerByte: 4, PerValue: 1000}
}

// Validate rejects a RolloutPolicy with errors that the CustomResourceDefinition cannot detect (SPEC 11.1.6).
// The response has status 422, like a rejection by the API server, and a cause for each field.
func Validate(_ context.Context, req admission.Request) admission.Response {
	written, stored := &outriggerv1.RolloutPolicy{}, (*outriggerv1.RolloutPolicy)(nil)
	if err := json.Unmarshal(req.Object.Raw, written); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the RolloutPolicy: %w", err))
	}
	if len(req.OldObject.Raw) > 0 {
		stored = &outriggerv1.RolloutPolicy{}
		if err := json.Unmarshal(req.OldObject.Raw, stored); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the stored RolloutPolicy: %w", err))
		}
	}
	if found := policy.Introduced(written, stored); len(found) > 0 {
		status := apierrors.NewInvalid(schema.GroupKind{Group: outriggerv1.GroupVersion.Group, Kind: "RolloutPolicy"}, written.Name, found).Status()
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
	}
	return admission.Allowed("")
}
