// Package telemetry owns what a service tells about itself: slog as JSON or readable text, OTLP
// traces, Prometheus metrics, pprof and probes on the private port.
package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Config is the telemetry part of every service's environment; the OTEL_* variables are read by the SDK.
type Config struct {
	// PrivateAddr serves /metrics, /debug/pprof, /livez and /readyz.
	PrivateAddr string `env:"PRIVATE_ADDR" envDefault:"127.0.0.1:0"`
	// LogFormat is json or text.
	LogFormat string     `env:"LOG_FORMAT" envDefault:"json"`
	LogLevel  slog.Level `env:"LOG_LEVEL" envDefault:"info"`
}

// Telemetry is one process's.
type Telemetry struct {
	Metrics *prometheus.Registry
	Log     *slog.Logger
}

// Start sets the slog default, the tracer provider (OTLP over HTTP when OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, else none) and the W3C propagator.
func Start(ctx context.Context, cfg Config, service string) (*Telemetry, error) { panic("unwritten") }

// Ready adds a readiness check; /readyz answers 503 with the names of those that fail.
func (t *Telemetry) Ready(name string, check func(context.Context) error) { panic("unwritten") }

// Private serves the private port until ctx ends, as a service.Part.
func (t *Telemetry) Private(ctx context.Context) error { panic("unwritten") }

// Close flushes the spans.
func (t *Telemetry) Close(ctx context.Context) error { panic("unwritten") }

// Middleware gives each HTTP request a span named after its route template, metrics and one log line.
func (t *Telemetry) Middleware(next http.Handler) http.Handler { panic("unwritten") }

// Carrier holds a trace context as text ("traceparent"), for a row that waits.
func Carrier(ctx context.Context) string { panic("unwritten") }

// Continue starts a span that carries on a stored traceparent: as its child, or, when the work waited longer than ten
// minutes, as a new trace linked to it (architecture.md, the way of one call). An empty traceparent starts a new trace.
func Continue(ctx context.Context, name, traceparent string, waited time.Duration, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	panic("unwritten")
}

// CallID and CallRequestID are the attributes that stand on every span of a call.
func CallID(id string) attribute.KeyValue        { return attribute.String("call_id", id) }
func CallRequestID(id string) attribute.KeyValue { return attribute.String("call_request_id", id) }
