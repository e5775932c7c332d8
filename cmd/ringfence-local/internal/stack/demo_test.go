package stack

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

func TestOperator_RepeatsARequestUntilTheDialerHasTheAgent(t *testing.T) {
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

// TestEnsureItem_DoesNotRepeatAStoredPOST covers a service that stores the item and responds with
// 503, because the setting was not confirmed in time (docs/reference/api/operator-api.md).
func TestEnsureItem_DoesNotRepeatAStoredPOST(t *testing.T) {
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
	id, err := op.ensureItem(t.Context(), "/agents", "name", "Ada", nil)
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

// TestRemoveInventedNumber_KeepsOtherNumbers covers a folder that was first used with the
// simulator. The dialer's table contains the number of the demo agent and a number that an operator
// added.
func TestRemoveInventedNumber_KeepsOtherNumbers(t *testing.T) {
	t.Parallel()
	const table = "-- +goose Up\nCREATE TABLE numbers (phone_e164 text NOT NULL);"
	pool := pgtest.New(t, dialer, pg.Migrations{Name: dialer, FS: fstest.MapFS{"0001_numbers.sql": {Data: []byte(table)}}})
	const own = "+14155550123"
	if _, err := pool.Exec(t.Context(), "INSERT INTO numbers VALUES ($1), ($2)", demoNumber, own); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second run has nothing to delete
		if err := removeInventedNumber(t.Context(), pool.Config().ConnString()); err != nil {
			t.Fatalf("removeInventedNumber: %v", err)
		}
		var got string
		err := pool.QueryRow(t.Context(), "SELECT string_agg(phone_e164, ' ') FROM numbers").Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		if got != own {
			t.Errorf("numbers = %q, want %q", got, own)
		}
	}
}

func TestRemoveInventedNumber_SucceedsInAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, dialer)
	if err := removeInventedNumber(t.Context(), pool.Config().ConnString()); err != nil {
		t.Errorf("removeInventedNumber: %v", err)
	}
}
