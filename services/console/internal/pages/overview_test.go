package pages

import (
	"net/http"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

// The fields of the API have several integer types.
func TestOverview_CountsTheFailuresOfASubscription(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /v1/webhook-subscriptions", map[string]any{"has_more": false, "data": []any{
		map[string]any{"id": agentID, "name": "CRM", "status": "active", "consecutive_failures": 3}}})
	w := s.get("/w/" + workspaceID)
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, "CRM")
	wantBody(t, w, "3 failed attempts in a row")
}
