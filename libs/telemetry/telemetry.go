// Package telemetry sets up the logs (slog as JSON or text), traces (OTLP), Prometheus metrics,
// pprof and the probes on the private port.
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

// Config contains the settings of telemetry. The OpenTelemetry SDK reads the OTEL_* variables
// itself.
type Config struct {
	// PrivateAddr is the address that serves /metrics, /debug/pprof, /livez and /readyz.
	PrivateAddr string `env:"PRIVATE_ADDR" envDefault:"127.0.0.1:0" help:"Address host:port of /metrics, /debug/pprof, /livez and /readyz. It has no password, so it must not be reachable from the internet. Port 0 means any free port."`
	// LogFormat is "json" or "text".
	LogFormat string     `env:"LOG_FORMAT" envDefault:"json" help:"Format of log lines: json for programs, text for people."`
	LogLevel  slog.Level `env:"LOG_LEVEL" envDefault:"info" help:"Lowest level that is logged: debug, info, warn or error."`
}

// Telemetry contains the metrics and the log of a process. With a nil *Telemetry, Middleware works
// without metrics, which is useful in tests.
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

// Start sets the default logger, the W3C propagator (trace context only, no baggage) and the tracer
// provider. Traces are sent by OTLP over HTTP if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set.
func Start(ctx context.Context, cfg Config, name string) (*Telemetry, error) {
	handler, err := logHandler(service.Log(ctx), cfg.LogFormat, cfg.LogLevel)
	if err != nil {
		return nil, err
	}
	t := &Telemetry{
		Metrics: prometheus.NewRegistry(),
		Log:     slog.New(traceHandler{handler}).With("service", name),
		addr:    cfg.PrivateAddr,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ringfence_http_request_duration_seconds",
			Help:    "How long an HTTP request took, by method, route template and status.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route", "status"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_http_requests_in_flight", Help: "HTTP requests in progress.",
		}),
		flush: func(context.Context) error { return nil },
	}
	t.Metrics.MustRegister(t.requests, t.inFlight, newBuild(name),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	slog.SetDefault(t.Log)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { t.Log.Warn("telemetry not sent", "error", err) }))
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
	// All processes of a local stack inherit one environment. The name of this service is therefore
	// added last, and replaces the name in the environment.
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

// Close sends the remaining spans, for at most 5 s, even if ctx has ended. If spans cannot be sent,
// they are lost and the error is logged.
func (t *Telemetry) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := t.flush(ctx); err != nil {
		otel.Handle(fmt.Errorf("flush spans: %w", err))
	}
}
