package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// longWait is the wait after which Continue starts a new trace.
const maxParentWait = 10 * time.Minute

func tracer() trace.Tracer { return otel.Tracer("ringfence.dev") }

// Carrier returns the trace context as text ("traceparent") to store with a row. It is empty if ctx
// has no trace.
func Carrier(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Continue starts a span for work that was stored with a traceparent. The span is a child of the
// stored one. If the work waited for more than ten minutes, it is a new trace that is linked to it.
// An empty traceparent starts a new trace. A span in ctx is ignored. The caller must end the span.
func Continue(ctx context.Context, name, traceparent string, waited time.Duration, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	stored := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	parent := trace.SpanContextFromContext(stored)
	options := []trace.SpanStartOption{trace.WithAttributes(attrs...), trace.WithSpanKind(trace.SpanKindConsumer)}
	switch {
	case parent.IsValid() && waited <= maxParentWait:
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	case parent.IsValid():
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: parent}))
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	default:
		options = append(options, trace.WithNewRoot())
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	return tracer().Start(ctx, name, options...)
}

// CallID and CallRequestID are attributes of every span of a call.
func CallID(id string) attribute.KeyValue        { return attribute.String("call_id", id) }
func CallRequestID(id string) attribute.KeyValue { return attribute.String("call_request_id", id) }
