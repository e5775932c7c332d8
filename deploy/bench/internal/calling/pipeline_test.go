package calling

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// TestPipeline_APOSTThatNobodyAnswersForEndsNothing: it is counted apart, and the next call is made.
func TestPipeline_APOSTThatNobodyAnswersForEndsNothing(t *testing.T) {
	t.Parallel()
	var h *House
	var accepting atomic.Bool
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !accepting.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.Landing.Deliver(rig.Delivery{Type: "call.completed", Signed: true, At: time.Now(), Body: []byte(`{"data":{"to":"` + phoneNumber(firstNumber+2) + `"}}`)})
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	h = &House{Setup: Setup{Landing: NewLanding()}, patience: 3 * time.Second}
	var k kept
	w := &rig.Workspace{API: rig.NewClient(server.URL, "")}
	if err := h.oneCall(t.Context(), &k, w); err != nil || len(k.unanswered) != 1 || len(k.numbers) != 0 {
		t.Fatalf("err %v; given up %v, accepted %v, want one given up", err, k.unanswered, k.numbers)
	}
	if asked.Load() < 2 || h.refused.Load() != asked.Load()-1 {
		t.Errorf("asked %d times and counted %d made again", asked.Load(), h.refused.Load())
	}
	accepting.Store(true)
	if err := h.oneCall(t.Context(), &k, w); err != nil || len(k.unanswered) != 1 || len(k.numbers) != 1 || k.landed() != 1 {
		t.Fatalf("err %v; given up %v, accepted %v, %d landed, want one of each", err, k.unanswered, k.numbers, k.landed())
	}
	server.Close()
	if err := h.oneCall(t.Context(), &k, w); err == nil {
		t.Error("nobody listens any more, and that is no error")
	}
}
