package stack

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestOperator_WaitsForWhoHasNotHeardOfTheAgent: the dialer hears of it over Kafka; any other refusal is one.
func TestOperator_WaitsForWhoHasNotHeardOfTheAgent(t *testing.T) {
	t.Parallel()
	for code, tries := range map[string]int64{"invalid_agent": 3, "invalid_phone": 1} {
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
		if err != nil || asked.Load() != tries || (status == http.StatusCreated) != (tries == 3) {
			t.Errorf("%s: %d %s, %v after %d tries, want %d", code, status, answer, err, asked.Load(), tries)
		}
	}
}
