package kit

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one span of an OTLP export.
type Span struct {
	TraceID, SpanID, ParentID string
	Service, Name             string
	Attributes                map[string]string
	Start, End                time.Time
}

// Traces is a server that receives OTLP over HTTP.
type Traces struct {
	URL string

	server *httptest.Server
	mu     sync.Mutex
	spans  []Span
}

// NewTraces starts a receiver.
func NewTraces() *Traces {
	t := &Traces{}
	t.server = httptest.NewServer(t)
	t.URL = t.server.URL
	return t
}

// Close stops the receiver.
func (t *Traces) Close() { t.server.Close() }

// ServeHTTP stores the spans of one export.
func (t *Traces) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	var export collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(data, &export) != nil {
		http.Error(w, "not an export", http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, resource := range export.ResourceSpans {
		service := ""
		for _, kv := range resource.GetResource().GetAttributes() {
			if kv.Key == "service.name" {
				service = kv.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				span := Span{
					TraceID: hex.EncodeToString(s.TraceId), SpanID: hex.EncodeToString(s.SpanId), ParentID: hex.EncodeToString(s.ParentSpanId),
					Service: service, Name: s.Name, Attributes: map[string]string{},
					Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)),
				}
				for _, kv := range s.Attributes {
					span.Attributes[kv.Key] = kv.Value.GetStringValue()
				}
				t.spans = append(t.spans, span)
			}
		}
	}
}

// Spans returns the received spans for which keep returns true.
func (t *Traces) Spans(keep func(Span) bool) []Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []Span
	for _, s := range t.spans {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}
