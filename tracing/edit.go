package tracing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// EditSpan is the name of the span of an edit of a SidecarSet, which begins the trace of
// the generation that it makes.
const EditSpan = "AdmitSidecarSet"

type editKey struct{}

// edit has the ids of the span of an edit.
type edit struct {
	trace trace.TraceID
	span  trace.SpanID
}

// WithEdit has a span that is begun without a parent be that of the edit which made a
// generation of a SidecarSet. Its ids follow from the uid of the set and the generation, so
// that every process knows them: nothing has to be written into the set.
func WithEdit(ctx context.Context, uid string, generation int64) context.Context {
	sum := sha256.Sum256(fmt.Appendf(nil, "SidecarSet/%s/%d", uid, generation))
	return context.WithValue(ctx, editKey{}, edit{trace.TraceID(sum[:16]), trace.SpanID(sum[16:24])})
}

// ids implements sdktrace.IDGenerator: random ids, but for edits.
type ids struct{}

// NewIDs returns those of a span without a parent.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if of, ok := ctx.Value(editKey{}).(edit); ok {
		return of.trace, of.span
	}
	var id trace.TraceID
	for !id.IsValid() {
		fill(id[:8])
		fill(id[8:])
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID returns that of a span with a parent.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		fill(id[:])
	}
	return id
}

// fill sets eight bytes.
func fill(bytes []byte) {
	random := rand.Uint64()
	for i := range bytes {
		bytes[i] = byte(random >> (8 * i))
	}
}
