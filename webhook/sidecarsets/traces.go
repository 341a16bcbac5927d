package sidecarsets

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/tracing"
)

// Traced starts a span for each allowed edit that creates a new generation. This span is the
// first span of the rollout's trace. Validation runs after all mutations, so uid and generation
// are known.
type Traced struct {
	Validation admission.Handler
	Tracer     trace.Tracer
}

// Handle answers with the response of the validation.
func (t *Traced) Handle(ctx context.Context, req admission.Request) admission.Response {
	began := time.Now()
	response := t.Validation.Handle(ctx, req)
	if set := edited(&req); response.Allowed && set != nil {
		_, span := t.Tracer.Start(tracing.WithEdit(context.Background(), string(set.UID), set.Generation), tracing.EditSpan,
			trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began), trace.WithAttributes(
				attribute.String("outrigger.sidecarset", set.Name), attribute.Int64("outrigger.generation", set.Generation)))
		span.End()
	}
	return response
}

// edited returns the SidecarSet if the request creates a new generation, else nil.
func edited(req *admission.Request) *metav1.PartialObjectMetadata {
	if isDryRun(req) {
		return nil
	}
	var set, before metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.Object.Raw, &set); err != nil {
		return nil
	}
	if req.Operation == admissionv1.Update {
		if err := json.Unmarshal(req.OldObject.Raw, &before); err != nil {
			return nil
		}
	}
	if set.Generation == before.Generation || set.DeletionTimestamp != nil {
		return nil
	}
	return &set
}
