package stack

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestOperator_RepeatsUntilTheDialerKnowsTheAgent: the dialer receives a new agent over Kafka. Every
// other refusal is final.
func TestOperator_RepeatsUntilTheDialerKnowsTheAgent(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		requests int64
		status   int
	}{
		"invalid_agent": {requests: 3, status: http.StatusCreated},
		"invalid_phone": {requests: 1, status: http.StatusUnprocessableEntity},
	} {
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) < 3 {
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = w.Write([]byte(`{"error":{"code":"` + code + `","message":"agent_id names no agent of this workspace."}}`))
				return
			}
			w.WriteHeader(http.StatusCreated)
		}))
		defer server.Close()
		status, answer, err := operator{base: server.URL, client: server.Client()}.do(t.Context(), "POST", "/numbers", nil)
		if err != nil {
			t.Errorf("%s: %v", code, err)
		}
		if got := asked.Load(); got != want.requests {
			t.Errorf("%s: requests = %d, want %d", code, got, want.requests)
		}
		if status != want.status {
			t.Errorf("%s: status = %d, want %d; body: %s", code, status, want.status, answer)
		}
	}
}
