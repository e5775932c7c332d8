package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// longWait is the wait after which work begins a trace of its own (architecture.md, the way of one call).
const longWait = 10 * time.Minute

func tracer() trace.Tracer { return otel.Tracer("ringfence.dev") }

// Carrier holds a trace context as text ("traceparent"), for a row that waits. It is empty when ctx has no trace.
func Carrier(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Continue starts a span that carries on a stored traceparent: as its child, or, when the work waited longer than ten
// minutes, as a new trace linked to it (architecture.md, the way of one call). An empty traceparent starts a new trace.
// A span that ctx already holds is left aside. The caller ends the span.
func Continue(ctx context.Context, name, traceparent string, waited time.Duration, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	stored := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	parent := trace.SpanContextFromContext(stored)
	options := []trace.SpanStartOption{trace.WithAttributes(attrs...), trace.WithSpanKind(trace.SpanKindConsumer)}
	switch {
	case parent.IsValid() && waited <= longWait:
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

// CallID and CallRequestID are the attributes that stand on every span of a call.
func CallID(id string) attribute.KeyValue        { return attribute.String("call_id", id) }
func CallRequestID(id string) attribute.KeyValue { return attribute.String("call_request_id", id) }
