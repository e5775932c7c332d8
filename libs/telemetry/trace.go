package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Work that waited longer than maxParentWait starts a new trace.
const maxParentWait = 10 * time.Minute

func tracer() trace.Tracer { return otel.Tracer("ringfence.dev") }

// Carrier returns the trace context of ctx as text ("traceparent"), so that it can be stored with a
// row. The text is empty if ctx has no trace.
func Carrier(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Continue starts a span for work that was stored with a traceparent. The span is a child of the
// stored span, and a span in ctx is ignored. The caller must end the span.
//
// If the work waited for more than ten minutes, the span starts a new trace that is linked to the
// stored span. An empty traceparent also starts a new trace.
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

// CallID and CallRequestID return the attributes that every span of a call has.
func CallID(id string) attribute.KeyValue        { return attribute.String("call_id", id) }
func CallRequestID(id string) attribute.KeyValue { return attribute.String("call_request_id", id) }
