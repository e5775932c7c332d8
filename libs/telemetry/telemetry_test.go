package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
)

const clientParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The provider of spans is global, so tests that use recordSpans are not parallel.
func recordSpans(t *testing.T) *tracetest.SpanRecorder {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorder)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	return recorder
}

func started(t *testing.T) (*Telemetry, *bytes.Buffer) {
	t.Helper()
	tel, err := Start(t.Context(), Config{PrivateAddr: "127.0.0.1:0", LogFormat: "json"}, "calls")
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	tel.Log = slog.New(traceHandler{slog.NewJSONHandler(&lines, nil)})
	return tel, &lines
}

func serve(tel *Telemetry, middleware func(http.Handler) http.Handler, header http.Header) {
	router := chi.NewRouter()
	router.Use(middleware)
	router.Route("/v1", func(v1 chi.Router) {
		v1.Get("/opt-outs/{phone}", func(w http.ResponseWriter, r *http.Request) {
			Annotate(r.Context(), "workspace_id", "w-1")
			w.WriteHeader(http.StatusTeapot)
		})
	})
	request := httptest.NewRequest(http.MethodGet, "/v1/opt-outs/+15550100?secret=1", nil)
	for name, values := range header {
		request.Header[name] = values
	}
	router.ServeHTTP(httptest.NewRecorder(), request)
	_ = tel
}

func TestMiddleware_RecordsTheRouteTemplateInsteadOfThePath(t *testing.T) {
	spans := recordSpans(t)
	tel, lines := started(t)
	serve(tel, tel.Middleware, http.Header{"Traceparent": {clientParent}})

	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("spans: length of ended = %d, want 1", len(ended))
	}
	if ended[0].Name() != "GET /v1/opt-outs/{phone}" {
		t.Fatalf(`spans: ended[0].Name() = %q, want "GET /v1/opt-outs/{phone}"`, ended[0].Name())
	}
	if got := ended[0].SpanContext().TraceID().String(); !strings.Contains(clientParent, got) {
		t.Errorf("trace = %s, want the caller's", got)
	}
	var line map[string]any
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
		t.Fatalf("the log is not one JSON line: %v\n%s", err, lines)
	}
	if line["route"] != "/v1/opt-outs/{phone}" {
		t.Errorf("line: route = %q, want \"/v1/opt-outs/{phone}\"", line["route"])
	}
	if line["status"] != 418.0 {
		t.Errorf("line: status = %v, want 418.0", line["status"])
	}
	if line["workspace_id"] != "w-1" {
		t.Errorf("line: workspace_id = %q, want \"w-1\"", line["workspace_id"])
	}
	if line["trace_id"] == nil {
		t.Errorf("line: trace_id = nil, want a value")
	}
	output := lines.String()
	for _, a := range ended[0].Attributes() {
		output += a.Value.String()
	}
	metrics := httptest.NewRecorder()
	tel.privateHandler().ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	output += metrics.Body.String()
	if strings.Contains(output, "5550100") {
		t.Errorf(`output = %q, want it without "5550100"; lines = %s`, output, lines)
	} else if strings.Contains(output, "secret") {
		t.Errorf(`output = %q, want it without "secret"; lines = %s`, output, lines)
	}
	if want := `ringfence_http_request_duration_seconds_count{method="GET",route="/v1/opt-outs/{phone}",status="418"} 1`; !strings.Contains(metrics.Body.String(), want) {
		t.Errorf("metrics lack %s", want)
	}
}

func TestMiddleware_UnknownRoutesAndMethodsShareALabelValue(t *testing.T) {
	tel, lines := started(t)
	router := chi.NewRouter()
	router.Use(tel.Middleware)
	router.Get("/known", func(http.ResponseWriter, *http.Request) {})
	router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("BREW", "/a/b/c", nil))
	if !strings.Contains(lines.String(), `"method":"OTHER"`) {
		t.Errorf("line: lines = %q, want it to contain %q", lines.String(), `"method":"OTHER"`)
	} else if !strings.Contains(lines.String(), `"route":"unmatched"`) {
		t.Errorf("line: lines = %q, want it to contain %q", lines.String(), `"route":"unmatched"`)
	}
}

func TestEdge_LinksTheClientsTrace(t *testing.T) {
	spans := recordSpans(t)
	tel, _ := started(t)
	serve(tel, tel.Edge, http.Header{"Traceparent": {clientParent}, "Tracestate": {"a=b"}, "Baggage": {"c=d"}})
	span := spans.Ended()[0]
	if strings.Contains(clientParent, span.SpanContext().TraceID().String()) {
		t.Errorf("the client's trace was adopted: clientParent = %q, want it without %q",
			clientParent, span.SpanContext().TraceID().String())
	} else if span.Parent().IsValid() {
		t.Error("the client's trace was adopted: span.Parent().IsValid() = true, want false")
	}
	if links := span.Links(); len(links) != 1 {
		t.Errorf("links: length of links = %d, want 1", len(links))
	} else if !strings.Contains(clientParent, links[0].SpanContext.TraceID().String()) {
		t.Errorf("links: clientParent = %q, want it to contain %q", clientParent, links[0].SpanContext.TraceID().String())
	}
}

func TestEdge_RemovesTracingHeadersEvenWithoutAnExporter(t *testing.T) {
	otel.SetTracerProvider(noop.NewTracerProvider())
	tel, _ := started(t)
	var carried string
	handler := tel.Edge(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		carried = Carrier(r.Context()) + r.Header.Get("Traceparent")
	}))
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Traceparent", clientParent)
	handler.ServeHTTP(httptest.NewRecorder(), request)
	if carried != "" {
		t.Errorf("carried = %q, want nothing", carried)
	}
}

func TestContinue_StartsAChildSpanOrALinkedTrace(t *testing.T) {
	spans := recordSpans(t)
	ctx, origin := tracer().Start(t.Context(), "post")
	stored := Carrier(ctx)
	origin.End()
	for _, row := range []struct {
		name        string
		traceparent string
		waited      time.Duration
		same        bool
		links       int
	}{
		{"after a short wait, the span is a child", stored, 10 * time.Minute, true, 0},
		{"after a long wait, the span starts a linked trace", stored, 10*time.Minute + 1, false, 1},
		{"without a traceparent, the span starts a new trace", "", 0, false, 0},
		{"a malformed traceparent is ignored", "00-zz", 0, false, 0},
	} {
		// A span that is open in the context must not become the parent of the new span.
		around, other := tracer().Start(t.Context(), "worker loop")
		_, span := Continue(around, row.name, row.traceparent, row.waited, CallID("c-1"))
		span.End()
		other.End()
		ended := spans.Ended()
		got := ended[len(ended)-2]
		if same := got.SpanContext().TraceID() == origin.SpanContext().TraceID(); same != row.same {
			t.Errorf("%s: same = %v, want %v", row.name, same, row.same)
		} else if value := len(got.Links()); value != row.links {
			t.Errorf("%s: length of got.Links() = %d, want %d", row.name, value, row.links)
		}
		if got.SpanContext().TraceID() == other.SpanContext().TraceID() {
			t.Errorf("%s: it went into the loop's trace", row.name)
		}
	}
}

func TestReadyz_NamesFailingChecks(t *testing.T) {
	tel, _ := started(t)
	get := func(path string) (int, string) {
		answer := httptest.NewRecorder()
		tel.privateHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer.Code, answer.Body.String()
	}
	if status, _ := get("/readyz"); status != http.StatusOK {
		t.Errorf("without checks = %d, want 200", status)
	}
	tel.Ready("postgres", func(context.Context) error { return errors.New("away") })
	tel.Ready("kafka", func(ctx context.Context) error { return ctx.Err() })
	status, body := get("/readyz")
	if status != http.StatusServiceUnavailable {
		t.Errorf("readyz: status = %v, want %v", status, http.StatusServiceUnavailable)
	} else if strings.TrimSpace(body) != `{"status":"unready","failing":["postgres"],"version":"devel"}` {
		t.Errorf("readyz: strings.TrimSpace(body) = %q, want %q",
			strings.TrimSpace(body), `{"status":"unready","failing":["postgres"],"version":"devel"}`)
	}
	if status, _ := get("/livez"); status != http.StatusOK {
		t.Errorf("livez = %d, want 200", status)
	}
	if status, body := get("/debug/pprof/"); status != http.StatusOK {
		t.Errorf("pprof: status = %v, want %v", status, http.StatusOK)
	} else if !strings.Contains(body, "goroutine") {
		t.Errorf(`pprof: body = %q, want it to contain "goroutine"`, body)
	}
}

func TestPrivate_ServerRunsUntilItsContextIsCanceled(t *testing.T) {
	tel, _ := started(t)
	addrs := make(chan string, 1)
	tel.Log = slog.New(slog.NewJSONHandler(writerFunc(func(p []byte) {
		var line struct{ Addr string }
		_ = json.Unmarshal(p, &line)
		addrs <- line.Addr
	}), nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tel.Private(ctx) }()
	answer, err := http.Get("http://" + <-addrs + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Private = %v, want nil", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestTextLog_WritesOneLinePerRecord(t *testing.T) {
	var out bytes.Buffer
	handler, err := logHandler(&out, "text", slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(traceHandler{handler}).With("service", "calls", "topic", "a b")
	log.WithGroup("http").Info("two\nlines", "error", "x\ny", "n", 1, slog.Group("g", "deep", true), "esc", "\x1b[2J")
	log.Debug("unseen")
	got := out.String()
	if strings.Count(got, "\n") != 1 {
		t.Errorf("text: strings.Count(got, \"\\n\") = %v, want 1", strings.Count(got, "\n"))
	} else if !strings.HasSuffix(got,
		`"two\nlines" topic="a b" http.error="x\ny" http.n=1 http.g.deep=true http.esc="\x1b[2J"`+"\n") {
		t.Errorf("text: got = %q, want it to end with %q",
			got, `"two\nlines" topic="a b" http.error="x\ny" http.n=1 http.g.deep=true http.esc="\x1b[2J"`+"\n")
	}
	if _, err := logHandler(&out, "xml", slog.LevelInfo); err == nil {
		t.Error("LOG_FORMAT=xml was taken")
	}
}

func TestMiddleware_LogsProbesAtDebugLevel(t *testing.T) {
	var out bytes.Buffer
	handler, err := logHandler(&out, "text", slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	tel := &Telemetry{Log: slog.New(handler), requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "requests"}, []string{"method", "route", "status"})}
	router := chi.NewRouter()
	router.Use(tel.Middleware)
	for _, route := range []string{"/readyz", "/livez", "/v1/calls"} {
		router.Get(route, func(http.ResponseWriter, *http.Request) {})
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, route, nil))
	}
	if output := out.String(); strings.Count(output, "\n") != 1 {
		t.Errorf("String: strings.Count(output, \"\\n\") = %v, want 1", strings.Count(output, "\n"))
	} else if !strings.Contains(output, "route=/v1/calls") {
		t.Errorf(`String: output = %q, want it to contain "route=/v1/calls"`, output)
	}
}
