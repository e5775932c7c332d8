package telemetry

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/service"
)

// Observe adds a value to a histogram. The trace of ctx, when it is kept, stands beside the value's bucket as an exemplar (trace_id), so that
// a dashboard leads from a slow point to what was slow.
func Observe(ctx context.Context, histogram prometheus.Observer, value float64) {
	span := trace.SpanContextFromContext(ctx)
	marking, ok := histogram.(prometheus.ExemplarObserver)
	if !ok || !span.IsSampled() {
		histogram.Observe(value)
		return
	}
	marking.ObserveWithExemplar(value, prometheus.Labels{"trace_id": span.TraceID().String()})
}

// newBuild is 1, with what runs here as labels: two versions at once are seen while an upgrade rolls.
func newBuild(name string) prometheus.Gauge {
	labels := prometheus.Labels{"service": name, "version": service.Version(), "go_version": runtime.Version()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringfence_build_info", Help: "1, labelled with the service, its version and that of Go.", ConstLabels: labels,
	})
	build.Set(1)
	return build
}
