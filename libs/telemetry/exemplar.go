package telemetry

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/service"
)

// Observe adds a value to a histogram. If the trace of ctx is sampled, the trace id is added as an
// exemplar (trace_id). A dashboard can then link a slow value to its trace.
func Observe(ctx context.Context, histogram prometheus.Observer, value float64) {
	span := trace.SpanContextFromContext(ctx)
	marking, ok := histogram.(prometheus.ExemplarObserver)
	if !ok || !span.IsSampled() {
		histogram.Observe(value)
		return
	}
	marking.ObserveWithExemplar(value, prometheus.Labels{"trace_id": span.TraceID().String()})
}

// newBuild returns a metric with the value 1 and the version as a label. During an upgrade
// Prometheus shows the old and the new version.
func newBuild(name string) prometheus.Gauge {
	labels := prometheus.Labels{"service": name, "version": service.Version(), "go_version": runtime.Version()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringfence_build_info", Help: "1, labelled with the service, its version and that of Go.", ConstLabels: labels,
	})
	build.Set(1)
	return build
}
