package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// requestNotes contains the values that the handlers of an HTTP request add to its span and log
// line.
type requestNotes struct {
	mu    sync.Mutex
	route string
	attrs []slog.Attr
	// stream is true if the response has no end. The duration of such a response is not a latency.
	stream bool
}

type noteKey struct{}

// Route sets the route template of an HTTP request that a router other than chi handles.
func Route(ctx context.Context, template string) {
	if n, ok := ctx.Value(noteKey{}).(*requestNotes); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.route = template
	}
}

// Stream marks the response of the HTTP request as a stream. The duration of a stream is logged,
// but not added to the latency metric.
func Stream(ctx context.Context) {
	if n, ok := ctx.Value(noteKey{}).(*requestNotes); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.stream = true
	}
}

// Annotate adds an attribute (workspace_id, call_id) to the span and the log line of the HTTP
// request to which ctx belongs. If ctx belongs to no HTTP request, the attribute is added to the
// span only.
func Annotate(ctx context.Context, key, value string) {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String(key, value))
	if n, ok := ctx.Value(noteKey{}).(*requestNotes); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.attrs = append(n.attrs, slog.String(key, value))
	}
}

// Middleware adds a span, metrics and one log line to each HTTP request. The span has the name of
// the route template and continues the caller's trace. Path and query are never recorded, because
// they contain phone numbers.
func (t *Telemetry) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer().Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		t.observe(w, r.WithContext(ctx), span, next)
	})
}

// Edge does what Middleware does, for requests of clients outside the system. Each request starts a
// new trace that is linked to the client's traceparent. The tracing headers of the client are
// removed.
func (t *Telemetry) Edge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithNewRoot()}
		remote := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
		if client := trace.SpanContextFromContext(remote); client.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: client}))
		}
		for _, header := range []string{"Traceparent", "Tracestate", "Baggage"} {
			r.Header.Del(header)
		}
		ctx, span := tracer().Start(r.Context(), r.Method, options...)
		t.observe(w, r.WithContext(ctx), span, next)
	})
}

func (t *Telemetry) observe(w http.ResponseWriter, r *http.Request, span trace.Span, next http.Handler) {
	begun := time.Now()
	defer span.End()
	n := &requestNotes{}
	ctx := context.WithValue(r.Context(), noteKey{}, n)
	if t != nil && t.inFlight != nil {
		t.inFlight.Inc()
		defer t.inFlight.Dec()
	}
	recorder := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
	aborted := true
	defer func() { t.finishRequest(ctx, n, r, recorder, span, time.Since(begun), aborted) }()
	next.ServeHTTP(recorder, r.WithContext(ctx))
	aborted = false
}

// finishRequest names the span, records the metrics and writes the log line. aborted is true if the
// handler panicked and the connection will be closed.
func (t *Telemetry) finishRequest(
	ctx context.Context, n *requestNotes, r *http.Request, w middleware.WrapResponseWriter, span trace.Span,
	took time.Duration, aborted bool,
) {
	n.mu.Lock()
	defer n.mu.Unlock()
	method, route, status := knownMethod(r.Method), routeOf(ctx, n), w.Status()
	if status == 0 {
		status = http.StatusOK
	}
	if aborted {
		status = http.StatusInternalServerError
	}
	span.SetName(method + " " + route)
	span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
	log := slog.Default()
	if t != nil && t.requests != nil {
		if !n.stream {
			Observe(ctx, t.requests.WithLabelValues(method, route, strconv.Itoa(status)), took.Seconds())
		}
		log = t.Log
	}
	attrs := append([]slog.Attr{slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Float64("ms", float64(took.Microseconds())/1000)}, n.attrs...)
	log.LogAttrs(ctx, levelOf(route), "request", attrs...)
}

// levelOf returns the level of the log line. It is debug for the probes of load balancers, which
// arrive several times a second.
func levelOf(route string) slog.Level {
	if route == "/readyz" || route == "/livez" {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// routeOf returns the route template. All unknown paths share one value, so that clients cannot add
// new label values.
func routeOf(ctx context.Context, n *requestNotes) string {
	if n.route != "" {
		return n.route
	}
	if routed := chi.RouteContext(ctx); routed != nil {
		if pattern := routed.RoutePattern(); pattern != "" && !strings.HasSuffix(pattern, "/*") {
			return pattern
		}
	}
	return "unmatched"
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "OTHER"
}
