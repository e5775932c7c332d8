package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/telemetry"
)

func TestObserve_AddsTheTraceAsExemplar(t *testing.T) {
	t.Parallel()
	const id = "0102030405060708090a0b0c0d0e0f10"
	for name, flags := range map[string]trace.TraceFlags{
		"a sampled trace": trace.FlagsSampled, "a trace that is not sampled": 0,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Buckets: []float64{1}})
			ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, SpanID: trace.SpanID{1}, TraceFlags: flags,
			}))
			telemetry.Observe(ctx, histogram, 0.5)

			registry := prometheus.NewRegistry()
			registry.MustRegister(histogram)
			scrape := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			scrape.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
			answer := httptest.NewRecorder()
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(answer, scrape)
			marked := strings.Contains(answer.Body.String(), `# {trace_id="`+id+`"}`)
			if marked != (flags == trace.FlagsSampled) {
				t.Errorf("an exemplar: marked = %v, want %v", marked, flags == trace.FlagsSampled)
			} else if !strings.Contains(answer.Body.String(), "took_seconds_count 1") {
				t.Errorf(`an exemplar: answer.Body = %q, want it to contain "took_seconds_count 1"`, answer.Body.String())
			}
		})
	}
}
