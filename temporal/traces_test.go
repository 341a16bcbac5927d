package temporal

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A server may quote rejected credentials in its messages.
func TestSpansContainNoMessageOfAServer(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	span := startSpan(t.Context(), tracer, "RunActivity:UpgradeBatch")
	failure := errors.New("invalid token s3cret")
	span.RecordError(failure)
	span.SetStatus(codes.Error, failure.Error())
	span.End()
	require.Len(t, recorder.Ended(), 1)
	assert.Empty(t, recorder.Ended()[0].Events())
	assert.Equal(t, sdktrace.Status{Code: codes.Error}, recorder.Ended()[0].Status())
}
