package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/store"
)

func TestTrunks_ShowTheStateOfAllReplicas(t *testing.T) {
	t.Parallel()
	o := open(t)
	reports := store.NewReplicaReports(o.pool)
	_, added, _ := o.sendOperator(t, http.MethodPost, lines, `{"name":"Main","host":"192.0.2.1"}`)
	id := uuid.MustParse(added["id"].(string))
	home := lines + "/" + id.String()
	if got, want := added["state"], "unknown"; got != want {
		t.Errorf("state of a new trunk = %v, want %q", got, want)
	}
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	until := at.Add(time.Hour)
	yes := true
	up := replicas.Trunk{
		TrunkID: id, Version: 1, State: replicas.Up, Registered: &yes, RegisteredUntil: &until,
		LastAnswer: &replicas.Answer{At: at, Status: 200, RoundTripMillis: 12}, Recent: replicas.Recent{Calls: 9},
	}
	down := replicas.Trunk{
		TrunkID: id, Version: 1, State: replicas.Down, OptionsError: "no answer",
		Recent: replicas.Recent{Calls: 1, Failures: 1},
	}
	for name, one := range map[string]replicas.Trunk{"a": up, "b": down} {
		if err := reports.Put(t.Context(), uuid.New(), name, replicas.Report{Trunks: []replicas.Trunk{one}}); err != nil {
			t.Fatal(err)
		}
	}
	stale := uuid.New()
	if err := reports.Put(t.Context(), stale, "killed", replicas.Report{Trunks: []replicas.Trunk{up}}); err != nil {
		t.Fatal(err)
	}
	_, err := o.pool.Exec(t.Context(),
		`UPDATE replica_reports SET reported_at = now() - interval '1 minute' WHERE owner = $1`, stale)
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.pool.Exec(t.Context(), `INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner)
		VALUES ($1, $2, false, '+14155550100', '+14155550123', $3)`, uuid.New(), id, uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := o.sendOperator(t, http.MethodGet, lines, "")
	_, one, _ := o.sendOperator(t, http.MethodGet, home, "")
	if diff := cmp.Diff(page["data"].([]any)[0], any(one)); diff != "" {
		t.Errorf("the list and the member differ (-list +member):\n%s", diff)
	}
	want := map[string]any{
		"state": "mixed", "channels_in_use": 1.0, "registered": true, "registered_until": "2026-11-23T10:00:00.000Z",
		"last_answer":   map[string]any{"at": "2026-11-23T09:00:00.000Z", "status": 200.0, "round_trip_ms": 12.0},
		"options_error": "no answer", "recent": map[string]any{"calls": 10.0, "failures": 1.0, "error_rate": 0.1},
	}
	for key, value := range want {
		if diff := cmp.Diff(value, one[key]); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", key, diff)
		}
	}
	states := map[string]any{}
	for _, each := range one["replicas"].([]any) {
		seen := each.(map[string]any)
		states[seen["replica"].(string)] = seen["state"]
	}
	if diff := cmp.Diff(map[string]any{"a": "up", "b": "down"}, states); diff != "" {
		t.Errorf("states by replica differ (-want +got):\n%s", diff)
	}
	_, changed, _ := o.sendOperator(t, http.MethodPatch, home, `{"channels":20}`)
	if got, want := changed["state"], "unknown"; got != want {
		t.Errorf("state after a change = %v, want %q until the replicas use the change", got, want)
	}
	_, changed, _ = o.sendOperator(t, http.MethodPatch, home, `{"status":"disabled"}`)
	if got, want := changed["state"], "disabled"; got != want {
		t.Errorf("state of a disabled trunk = %v, want %q", got, want)
	}
}

// If a change was stored, the request must succeed even if the reports cannot be read.
func TestTrunks_RequestsSucceedIfReplicaReportsCannotBeRead(t *testing.T) {
	t.Parallel()
	o := open(t)
	_, err := o.pool.Exec(t.Context(),
		`INSERT INTO replica_reports (owner, name, report) VALUES ($1, 'a', '{"trunks":"no list"}')`, uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	status, added, body := o.sendOperator(t, http.MethodPost, lines, `{"name":"Main","host":"192.0.2.1"}`)
	if status != http.StatusCreated {
		t.Fatalf("status of POST = %d, want %d; body: %s", status, http.StatusCreated, body)
	}
	home := lines + "/" + added["id"].(string)
	tests := []struct {
		name, method, path, body string
	}{
		{name: "change", method: http.MethodPatch, path: home, body: `{"channels":20}`},
		{name: "read", method: http.MethodGet, path: home},
	}
	for _, tt := range tests {
		status, shown, _ := o.sendOperator(t, tt.method, tt.path, tt.body)
		if status != http.StatusOK {
			t.Errorf("%s: status = %d, want %d", tt.name, status, http.StatusOK)
		}
		if got, want := shown["state"], "unknown"; got != want {
			t.Errorf("%s: state = %v, want %q", tt.name, got, want)
		}
	}
	if status, _, _ := o.sendOperator(t, http.MethodGet, lines, ""); status != http.StatusOK {
		t.Errorf("status of the list = %d, want %d", status, http.StatusOK)
	}
}
