package e2e

import (
	"slices"
	"testing"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// TestFirstCall_HasOneDialOneChargeAndOneTrace places one call. There must be exactly one dial, one
// charge, one delivery of each event per subscription, and one trace through all six services. The
// test also runs the first call of docs/deploy/compose.md.
func TestFirstCall_HasOneDialOneChargeAndOneTrace(t *testing.T) {
	system := stack(t)
	s, hooks := system.Stack, system.Hooks
	w := tenant(t, s, hooks, "100")
	second := receiverPath(t, w, hooks)

	req, err := w.Place(t.Context(), map[string]any{"to": number(1), "external_ref": "order-1042", "idempotency_key": "first"})
	if err != nil {
		t.Fatal(err)
	}
	again := kit.Request{}
	if err := w.API.Into(t.Context(), "POST", "/v1/calls", map[string]any{"idempotency_key": "first"}, 200,
		&again); err != nil {
		t.Fatalf("replay: Into: %v", err)
	} else if again.ID != req.ID {
		t.Fatalf("replay: again.ID = %v, want %v", again.ID, req.ID)
	}
	v, err := s.Judge(t.Context(), w, hooks, map[string]string{req.ID: req.To}, 100, kit.HangTimeout)
	if err != nil {
		t.Fatalf("Judge: %v", err)
	}
	if v.Err() != nil {
		t.Fatalf("v.Err() = %v, want nil", v.Err())
	}
	sharedstack.Equal(t, "v.Dials", v.Dials, 1)
	sharedstack.Equal(t, "v.Calls", v.Calls, 1)
	sharedstack.Equal(t, "v.ByStatus['completed']", v.ByStatus["completed"], 1)
	call := finishedCall(t, w, req.ID)
	sharedstack.Equal(t, "stage.Value(call.Outcome)", sharedstack.Value(call.Outcome), "interested")
	if call.CreditsCharged == "" {
		t.Errorf("call.CreditsCharged = %v, want a value", call.CreditsCharged)
	}
	if call.Summary["customer_name"] == nil {
		t.Errorf("call.Summary['customer_name'] = %v, want a value", call.Summary["customer_name"])
	}
	for _, path := range []string{"/" + w.ID, second} {
		want := []string{"call.ringing", "call.answered", "call.completed"}
		until(t, "three events at "+path, func() bool { return len(types(hooks, path)) >= len(want) })
		if got := types(hooks, path); !slices.Equal(got, want) {
			t.Errorf("events at %s = %v, want %v, each once, in order", path, got, want)
		}
	}
	assertOneTrace(t, system.traces, req.ID)
	placesTheDocumentedCall(t, s)
}

func receiverPath(t *testing.T, w *kit.Workspace, r *kit.Receiver) string {
	t.Helper()
	var made struct {
		Secret string `json:"signing_secret"`
	}
	path := "/" + w.ID + "/second"
	err := w.API.Into(t.Context(), "POST", "/v1/webhook-subscriptions", map[string]any{
		"name": "second", "url": r.URL + path, "events": []string{"call.ringing", "call.answered", "call.completed"},
	}, 201, &made)
	if err != nil {
		t.Fatal(err)
	}
	r.SetSecret(path, made.Secret)
	return path
}

func types(r *kit.Receiver, path string) (got []string) {
	for _, d := range r.Deliveries(path[1:]) {
		got = append(got, d.Type)
	}
	return got
}

func finishedCall(t *testing.T, w *kit.Workspace, requestID string) kit.Call {
	t.Helper()
	req, err := w.Request(t.Context(), requestID)
	if err != nil {
		t.Fatalf("Request: %v", err)
	}
	if req.CallID == nil {
		t.Fatal("req.CallID = nil, want a value")
	}
	call, err := w.Call(t.Context(), *req.CallID)
	if err != nil {
		t.Fatal(err)
	}
	return call
}

func assertOneTrace(t *testing.T, traces *kit.Traces, requestID string) {
	t.Helper()
	six := []string{"billing-wallet", "calls", "contacts-compliance", "dialer", "gateway", "webhook-dispatcher"}
	var services []string
	var roots []kit.Span
	err := kit.Until(t.Context(), kit.HangTimeout, "one trace spans all six services", func() (bool, error) {
		ids := map[string]bool{}
		for _, span := range traces.Spans(func(s kit.Span) bool { return s.Service == "dialer" && s.Attributes["call_request_id"] == requestID }) {
			ids[span.TraceID] = true
		}
		services, roots = nil, nil
		for _, span := range traces.Spans(func(s kit.Span) bool { return ids[s.TraceID] }) {
			if !slices.Contains(services, span.Service) {
				services = append(services, span.Service)
			}
			if span.ParentID == "" {
				roots = append(roots, span)
			}
		}
		slices.Sort(services)
		return len(ids) == 1 && slices.Equal(services, six) && len(roots) == 1, nil
	})
	if err != nil {
		t.Fatalf("%v: services %v, roots %+v", err, services, roots)
	}
	if roots[0].Service != "gateway" {
		t.Errorf("the trace begins in %s, want gateway", roots[0].Service)
	}
	delivered := traces.Spans(func(s kit.Span) bool { return s.Service == "webhook-dispatcher" && s.TraceID == roots[0].TraceID })
	if len(delivered) == 0 {
		t.Error("no delivery in the trace")
	}
}
