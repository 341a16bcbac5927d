package sidecarsets

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func TestEditsThatCreateAGenerationHaveASpan(t *testing.T) {
	object := func(generation int, more string) runtime.RawExtension {
		return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"logs","uid":"u1","generation":%d%s},"spec":{"secret":"x"}}`, generation, more)}
	}
	create := admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: object(1, "")}
	update := func(before, after int, more string) admissionv1.AdmissionRequest {
		return admissionv1.AdmissionRequest{Operation: admissionv1.Update, OldObject: object(before, ""), Object: object(after, more)}
	}
	dryRun := update(1, 2, "")
	dryRun.DryRun = new(true)
	for name, c := range map[string]struct {
		request  admissionv1.AdmissionRequest
		rejected bool
		want     []int64
	}{
		"creation":                 {create, false, []int64{1}},
		"edit":                     {update(4, 5, ""), false, []int64{5}},
		"edit of labels":           {update(4, 4, ""), false, nil},
		"edit that is rejected":    {update(4, 5, ""), true, nil},
		"dry run":                  {dryRun, false, nil},
		"deletion with finalizers": {update(4, 5, `,"deletionTimestamp":"2024-01-02T12:00:00Z"`), false, nil},
		"no object":                {admissionv1.AdmissionRequest{Operation: admissionv1.Create}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			traced := &Traced{
				Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer(""),
				Validation: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
					return admission.ValidationResponse(!c.rejected, "")
				}),
			}
			response := traced.Handle(t.Context(), admission.Request{AdmissionRequest: c.request})
			assert.Equal(t, !c.rejected, response.Allowed)
			var generations []int64
			for _, span := range recorder.Ended() {
				require.Equal(t, []attribute.KeyValue{attribute.String("outrigger.sidecarset", "logs"), span.Attributes()[1]}, span.Attributes())
				generations = append(generations, span.Attributes()[1].Value.AsInt64())
			}
			assert.Equal(t, c.want, generations)
		})
	}
}
