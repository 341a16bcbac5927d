package tracing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"go.opentelemetry.io/otel/trace"
)

// EditSpan is the name of the root span of a generation. The span represents the edit of the SidecarSet.
const EditSpan = "AdmitSidecarSet"

type editKey struct{}

// edit contains the ids of the span of an edit.
type edit struct {
	trace trace.TraceID
	span  trace.SpanID
}

// WithEdit returns the context for the root span of the edit that created a generation. The ids of the span are
// a hash of uid and generation, so every process can compute the ids without an annotation on the SidecarSet.
func WithEdit(ctx context.Context, uid string, generation int64) context.Context {
	sum := sha256.Sum256(fmt.Appendf(nil, "SidecarSet/%s/%d", uid, generation))
	return context.WithValue(ctx, editKey{}, edit{trace.TraceID(sum[:16]), trace.SpanID(sum[16:24])})
}

// ids is a sdktrace.IDGenerator with fixed ids for edits, and random ids for other spans.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator. NewIDs returns the ids of a root span.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if of, ok := ctx.Value(editKey{}).(edit); ok {
		return of.trace, of.span
	}
	var id trace.TraceID
	_, _ = rand.Read(id[:])
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator. NewSpanID returns the id of a child span.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}
