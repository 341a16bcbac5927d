package sidecarsets

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/webhook/review"
)

// Defaulter writes the defaults and hashes of SidecarSets.
type Defaulter struct {
	Decoder admission.Decoder
}

// Handle returns a response with a patch that writes the defaults and hashes. Handle rejects a SidecarSet
// that cannot be decoded.
func (d *Defaulter) Handle(_ context.Context, req admission.Request) admission.Response {
	set := &v1alpha1.SidecarSet{}
	if err := d.Decoder.Decode(req, set); err != nil {
		return undecodable(&req, err)
	}
	if err := revision.Complete(set, storedSet(d.Decoder, &req)); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	operations, err := difference(req.Object.Raw, set)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("SidecarSet %s: %w", set.Name, err))
	}
	return review.Patched(operations).WithWarnings(unknownFields(req.Object.Raw)...)
}

// storedSet returns the object before an update, and nil for a creation. If the stored object cannot be
// decoded, storedSet returns nil, so that the update is checked like a creation.
func storedSet(decoder admission.Decoder, req *admission.Request) *v1alpha1.SidecarSet {
	if req.Operation != admissionv1.Update {
		return nil
	}
	stored := &v1alpha1.SidecarSet{}
	if err := decoder.DecodeRaw(req.OldObject, stored); err != nil {
		return nil
	}
	return stored
}
