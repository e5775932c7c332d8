package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

func TestPipeline_UnansweredPOSTDoesNotEndTheRun(t *testing.T) {
	t.Parallel()
	var h *CallStack
	var accepting atomic.Bool
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !accepting.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.Landing.Deliver(kit.Delivery{Type: "call.completed", Signed: true, At: time.Now(), Body: []byte(`{"data":{"to":"` + dialedNumber(firstNumber+2) + `"}}`)})
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	h = &CallStack{CallSetup: CallSetup{Landing: NewLanding()}, repeatTimeout: 3 * time.Second}
	var k levelResult
	w := &kit.Workspace{API: kit.NewClient(server.URL, "")}
	counts := func(unanswered, accepted, landed int) {
		t.Helper()
		if got := len(k.unanswered); got != unanswered {
			t.Errorf("unanswered calls = %d, want %d", got, unanswered)
		}
		if got := len(k.numbers); got != accepted {
			t.Errorf("accepted calls = %d, want %d", got, accepted)
		}
		if got := k.landed(); got != landed {
			t.Errorf("calls with their webhook = %d, want %d", got, landed)
		}
	}
	if err := h.oneCall(t.Context(), &k, w); err != nil {
		t.Fatalf("call while the server responds 503: %v", err)
	}
	counts(1, 0, 0)
	if got := asked.Load(); got < 2 {
		t.Errorf("POSTs = %d, want at least 2", got)
	}
	if got, want := h.refused.Load(), asked.Load()-1; got != want {
		t.Errorf("repeated POSTs = %d, want %d", got, want)
	}
	accepting.Store(true)
	if err := h.oneCall(t.Context(), &k, w); err != nil {
		t.Fatalf("call while the server accepts: %v", err)
	}
	counts(1, 1, 1)
	server.Close()
	if err := h.oneCall(t.Context(), &k, w); err == nil {
		t.Error("a call without a server succeeded, want an error")
	}
}
