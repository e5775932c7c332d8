// Package telemetry owns what a service tells about itself: slog as JSON or readable text, OTLP
// traces, Prometheus metrics, pprof and probes on the private port. It leaves what is worth telling to the services.
package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"ringfence.dev/libs/service"
)

// Config is the telemetry part of every service's environment; the OTEL_* variables are read by the SDK.
type Config struct {
	// PrivateAddr serves /metrics, /debug/pprof, /livez and /readyz.
	PrivateAddr string `env:"PRIVATE_ADDR" envDefault:"127.0.0.1:0" help:"address of /metrics, /debug/pprof, /livez and /readyz; port 0 takes any"`
	// LogFormat is json or text.
	LogFormat string     `env:"LOG_FORMAT" envDefault:"json" help:"json, or text for people"`
	LogLevel  slog.Level `env:"LOG_LEVEL" envDefault:"info" help:"debug, info, warn or error"`
}

// Telemetry is one process's. A nil *Telemetry serves tests: Middleware works, without metrics.
type Telemetry struct {
	Metrics *prometheus.Registry
	Log     *slog.Logger

	addr     string
	requests *prometheus.HistogramVec
	inFlight prometheus.Gauge
	flush    func(context.Context) error

	mu     sync.Mutex
	checks []check
}

// Start sets the slog default, the tracer provider (OTLP over HTTP when OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, else none) and the W3C propagator (trace context only: baggage is not carried).
func Start(ctx context.Context, cfg Config, name string) (*Telemetry, error) {
	handler, err := logHandler(service.Log(ctx), cfg.LogFormat, cfg.LogLevel)
	if err != nil {
		return nil, err
	}
	t := &Telemetry{
		Metrics: prometheus.NewRegistry(),
		Log:     slog.New(traced{handler}).With("service", name),
		addr:    cfg.PrivateAddr,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ringfence_http_request_duration_seconds",
			Help:    "How long an HTTP request took, by method, route template and status.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route", "status"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_http_requests_in_flight", Help: "HTTP requests being answered now.",
		}),
		flush: func(context.Context) error { return nil },
	}
	t.Metrics.MustRegister(t.requests, t.inFlight, newBuild(name),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	slog.SetDefault(t.Log)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { t.Log.Warn("telemetry could not be sent", "error", err) }))
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return t, nil
	}
	if err := t.sendTraces(ctx, name); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Telemetry) sendTraces(ctx context.Context, service string) error {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return fmt.Errorf("make the OTLP exporter: %w", err)
	}
	// The processes of one stack inherit one environment, so the service's own name comes last and wins.
	about, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service)))
	if err != nil {
		return fmt.Errorf("describe this process: %w", err)
	}
	var batch []trace.BatchSpanProcessorOption
	if os.Getenv("OTEL_BSP_SCHEDULE_DELAY") == "" {
		batch = append(batch, trace.WithBatchTimeout(time.Second))
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter, batch...), trace.WithResource(about))
	otel.SetTracerProvider(provider)
	t.flush = provider.Shutdown
	return nil
}

// Close flushes the spans, for at most 5 s, also when ctx has ended. What the collector does not take is lost, and logged.
func (t *Telemetry) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := t.flush(ctx); err != nil {
		otel.Handle(fmt.Errorf("flush spans: %w", err))
	}
}
