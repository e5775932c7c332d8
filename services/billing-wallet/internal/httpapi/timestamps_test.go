package httpapi_test

import (
	"net/http"
	"testing"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// The test stores a time without a fraction of a second. An encoder that omits trailing zeros would
// write no decimals.
func TestTimestamps_HaveThreeDecimals(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, 5_000_000)
	if _, err := s.pool.Exec(t.Context(),
		`UPDATE wallets SET last_transaction_at = '2026-06-04 09:00:00+00'`); err != nil {
		t.Fatal(err)
	}
	admin := "/admin/v1/workspaces/" + workspace.String() + "/wallet"
	tests := []struct{ path, operator string }{
		{path: "/v1/wallet"},
		{path: admin, operator: "ops"},
		{path: admin + "/transactions", operator: "ops"},
	}
	for _, tt := range tests {
		_, body := s.request(http.MethodGet, tt.path, workspace, tt.operator, "")
		if got := testkit.CheckTimestamps(t, []byte(body)); got != 1 {
			t.Errorf("GET %s: %d timestamps in %s, want 1", tt.path, got, body)
		}
	}
}
