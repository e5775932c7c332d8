package httpapi_test

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/compliancev1"
)

// The stored times are whole seconds. An encoder that omits trailing zeros would write these times
// without decimals.
func TestTimestamps_HaveThreeDecimals(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.allowAllHours(t)
	id := r.create(t, `{"phone_e164":"+15005550001","name":"Ada"}`)
	_, err := r.preCheck("calls").PreCheck(t.Context(), connect.NewRequest(&compliancev1.PreCheckRequest{
		CallRequestId: uuid.Must(uuid.NewV7()).String(), WorkspaceId: r.workspace.String(), ToE164: "+15005550001",
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.checkResponse(t, r.customer(t, http.MethodPost, "/v1/opt-outs", `{"phone_e164":"+15005550001"}`), http.StatusOK, "")
	// created_at is computed from the id. A random id could contain a time after the year 9999, so
	// the id must be a UUIDv7.
	second := uuid.Must(uuid.NewV7()).String()
	for _, statement := range []string{
		`UPDATE contacts SET updated_at = '2026-06-04 09:00:00+00'`,
		`INSERT INTO decisions (id, workspace_id, call_request_id, phone_e164, contact_id, kind, inputs, policy_version,
			result, rule, code, message, call_at, judged_at)
		 SELECT '` + second + `', workspace_id, call_request_id, phone_e164, contact_id, kind,
		        (inputs::jsonb || '{"at":"2026-06-04T09:00:00Z","recent_dials":["2026-06-04T08:00:00.5Z"]}')::json,
		        policy_version, result, rule, code, message, '2026-06-04 09:00:00+00', judged_at
		 FROM decisions`,
	} {
		if _, err := r.pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const admin = "/admin/v1/workspaces/%s"
	for path, want := range map[string]int{
		// Each of the two decisions has call_at, judged_at and created_at. The inputs of the
		// decisions contain three more timestamps.
		admin + "/decisions":       9,
		admin + "/consent-records": 2,
		admin + "/contacts/+15005550001/preview?at=2027-06-04T09:00:00Z": 1,
	} {
		if got := testkit.CheckTimestamps(t, []byte(r.operator(t, http.MethodGet, path, "").raw), "local_time"); got != want {
			t.Errorf("GET %s: %d timestamps, want %d", path, got, want)
		}
	}
	for _, path := range []string{"/v1/contacts/" + id, "/v1/contacts"} {
		if got := testkit.CheckTimestamps(t, []byte(r.customer(t, http.MethodGet, path, "").raw)); got != 2 {
			t.Errorf("GET %s: %d timestamps, want 2", path, got)
		}
	}
}
