package httpapi_test

import (
	"net/http"
	"testing"

	"ringfence.dev/libs/testkit"
)

// The stored times are whole seconds. An encoder that omits trailing zeros would write the times
// without decimals.
func TestTimestamps_HaveThreeDecimals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	_, keyID := r.key(id, "write")
	r.operator(http.MethodDelete, "/admin/v1/workspaces/"+id+"/api-keys/"+keyID, "")
	for _, statement := range []string{
		`UPDATE workspaces SET updated_at = '2026-06-04 09:00:00+00'`,
		`UPDATE api_keys SET revoked_at = '2026-06-04 09:00:00+00'`,
	} {
		if _, err := r.pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{
		"/admin/v1/workspaces/" + id:                        2,
		"/admin/v1/workspaces/" + id + "/api-keys":          2,
		"/admin/v1/workspaces/" + id + "/api-keys/" + keyID: 2,
		// four timestamps: occurred_at of the entry, created_at of the key before and after the change,
		// and revoked_at of the key after the change
		"/admin/v1/audit?limit=1&workspace_id=" + id: 4,
	} {
		got := r.operator(http.MethodGet, path, "")
		if found := testkit.CheckTimestamps(t, []byte(got.body)); found != want {
			t.Errorf("GET %s: %d timestamps in %s, want %d", path, found, got.body, want)
		}
	}
}
