package temporal

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
)

// traceHeaderKey is the key of the header in which Temporal's SDKs send spans.
const traceHeaderKey = "_tracer-data"

// newTracingInterceptor returns an interceptor that creates spans of runs, activities, signals and updates.
// The parent of each span is the span in the header of the run, activity, signal or update. The interceptor
// drops baggage, because histories contain headers.
func newTracingInterceptor(tracer trace.Tracer) (interceptor.Interceptor, error) {
	traces, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer: tracer, TextMapPropagator: propagation.TraceContext{}, HeaderKey: traceHeaderKey,
		DisableQueryTracing: true, DisableBaggage: true, AllowInvalidParentSpans: true, SpanStarter: startSpan,
	})
	if err != nil {
		return nil, fmt.Errorf("set up traces of Temporal's SDK: %w", err)
	}
	return traces, nil
}

// startSpan starts a span that records whether an operation failed, but not the error, because a server may
// quote credentials in the error.
func startSpan(ctx context.Context, tracer trace.Tracer, name string, options ...trace.SpanStartOption) trace.Span {
	_, span := tracer.Start(ctx, name, options...)
	return spanWithoutErrors{span}
}

type spanWithoutErrors struct{ trace.Span }

// RecordError implements trace.Span.
func (spanWithoutErrors) RecordError(error, ...trace.EventOption) {}

// SetStatus implements trace.Span.
func (s spanWithoutErrors) SetStatus(code codes.Code, _ string) { s.Span.SetStatus(code, "") }

// TraceHeader returns a header with the span of ctx, for requests that bypass the interceptors of the SDK. If
// ctx has no span, TraceHeader returns nil.
func TraceHeader(ctx context.Context) (*common.Header, error) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return nil, nil
	}
	payload, err := converter.GetDefaultDataConverter().ToPayload(map[string]string(carrier))
	if err != nil {
		return nil, fmt.Errorf("encode the trace: %w", err)
	}
	return &common.Header{Fields: map[string]*common.Payload{traceHeaderKey: payload}}, nil
}
