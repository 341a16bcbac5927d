package tracing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestEveryProcessKnowsTheSpanOfAnEdit(t *testing.T) {
	tracer := func() (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
		recorder := tracetest.NewSpanRecorder()
		return sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids{}), sdktrace.WithSpanProcessor(recorder)), recorder
	}
	webhook, admitted := tracer()
	operator, started := tracer()
	_, edit := webhook.Tracer("").Start(WithEdit(t.Context(), "u1", 2), EditSpan)
	edit.End()
	under, _ := operator.Tracer("").Start(WithEdit(t.Context(), "u1", 2), EditSpan)
	_, child := operator.Tracer("").Start(under, "StartRollout")
	child.End()
	assert.Len(t, admitted.Ended(), 1)
	assert.Len(t, started.Ended(), 1, "the span of the edit is exported by the webhook alone")
	assert.Equal(t, admitted.Ended()[0].SpanContext().SpanID(), started.Ended()[0].Parent().SpanID())
	assert.Equal(t, admitted.Ended()[0].SpanContext().TraceID(), started.Ended()[0].SpanContext().TraceID())
	assert.NotEqual(t, started.Ended()[0].Parent().SpanID(), started.Ended()[0].SpanContext().SpanID())
}

func TestIdsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, of := range []struct {
		uid        string
		generation int64
	}{{"u1", 1}, {"u1", 2}, {"u2", 1}, {"u1", 11}} {
		trace, span := ids{}.NewIDs(WithEdit(t.Context(), of.uid, of.generation))
		seen[trace.String()], seen[span.String()] = true, true
	}
	for range 4 {
		trace, span := ids{}.NewIDs(t.Context())
		assert.True(t, trace.IsValid() && span.IsValid())
		seen[trace.String()], seen[span.String()] = true, true
	}
	assert.Len(t, seen, 16)
}
