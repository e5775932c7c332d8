package stack

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"

	"ringfence.dev/deploy/local/internal/state"
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

// TestEnsure_DoesNotRepeatAStoredPOST covers a service that stores the item and responds with 503: the setting was not
// confirmed in time (contract.md 7.3).
func TestEnsure_DoesNotRepeatAStoredPOST(t *testing.T) {
	t.Parallel()
	var posted atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			posted.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":{"code":"unavailable","message":"Agent 1 is stored and will be in force later."}}`))
		case posted.Load() == 0:
			_, _ = w.Write([]byte(`{"data":[],"has_more":false}`))
		default:
			_, _ = w.Write([]byte(`{"data":[{"id":"1","name":"Ada"}],"has_more":false}`))
		}
	}))
	t.Cleanup(server.Close)
	op := operator{base: server.URL, client: server.Client()}
	id, err := op.ensure(t.Context(), "/agents", "name", "Ada", nil)
	if err != nil {
		t.Fatalf("ensure: %v", err)
	}
	if id != "1" {
		t.Errorf("id = %q, want 1", id)
	}
	if got := posted.Load(); got != 1 {
		t.Errorf("POSTs = %d, want 1", got)
	}
}

// TestDemoWorkspace_RemovesTheInventedNumberOverSIP covers a folder that was first used with the simulator: a phone
// must not show the invented number of the demo agent.
func TestDemoWorkspace_RemovesTheInventedNumberOverSIP(t *testing.T) {
	const list = "/admin/v1/workspaces/1/numbers"
	tests := []struct {
		name    string
		carrier string
		numbers string
		want    []string // the paths of the DELETE requests
	}{
		{
			name: "the number is there", carrier: "sip", want: []string{list + "/8"},
			numbers: `{"id":"7","phone_e164":"+14155550123"},{"id":"8","phone_e164":"+15005550100"}`,
		},
		{name: "the number was removed before", carrier: "sip", numbers: `{"id":"7","phone_e164":"+14155550123"}`},
		{name: "the simulator", numbers: `{"id":"8","phone_e164":"+15005550100"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var deleted []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					deleted = append(deleted, r.URL.Path)
				}
				if r.URL.Path == list {
					_, _ = w.Write([]byte(`{"data":[` + tt.numbers + `],"has_more":false}`))
				}
			}))
			defer server.Close()
			address, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("CARRIER", tt.carrier)
			t.Setenv("RINGFENCE_ADMIN_PORT", address.Port())
			demo := state.Demo{WorkspaceID: "1", AgentID: "2", WriteKey: "write", ReadKey: "read"}
			s := &stack{state: &state.State{Demo: demo}}
			if _, err := s.demoWorkspace(t.Context()); err != nil {
				t.Fatal(err)
			}
			server.Close()
			if !slices.Equal(deleted, tt.want) {
				t.Errorf("deleted = %q, want %q", deleted, tt.want)
			}
		})
	}
}
