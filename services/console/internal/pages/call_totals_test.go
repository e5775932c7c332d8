package pages

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"ringfence.dev/services/console/internal/gateway"
)

const totalsPage = "/w/" + workspaceID + "/call-totals"

var statistics = map[string]any{
	"created_after": "2026-05-05T00:00:00.000Z", "created_before": "2026-06-04T00:00:00.000Z",
	"total": map[string]any{"calls": 1234, "answered": 900, "talk_seconds": 3661, "credits_charged": 12.5,
		"statuses": map[string]any{"busy": 7}, "outcomes": map[string]any{"interested": 3}},
}

func TestCallTotals_ApplyTheFiltersOfTheList(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		query, want, absent string
		requests            int
	}{
		"no filter":            {"", "900 answered · 1:01:01 of talk", "no totals", 1},
		"an agent":             {"?agent_id=" + agentID + "&starting_after=" + agentID, "Ended calls: 1,234", "no totals", 1},
		"a status":             {"?status=busy", "Ended calls: 7", "answered", 1},
		"a status without one": {"?status=failed", "Ended calls: 0", "answered", 1},
		"an outcome":           {"?outcome=interested", "Ended calls: 3", "answered", 1},
		"both":                 {"?outcome=interested&status=completed", "There are no totals", "Ended calls", 0},
		"a number":             {"?to=%2B14155550101", "There are no totals", "Ended calls", 0},
		"a reference":          {"?external_ref=x", "There are no totals", "Ended calls", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Viewer)
			s.set("GET /v1/call-statistics", statistics)
			w := s.get(totalsPage + tt.query)
			wantStatus(t, w, http.StatusOK)
			wantBody(t, w, tt.want)
			if strings.Contains(w.Body.String(), tt.absent) {
				t.Errorf("the page contains %q", tt.absent)
			}
			sent := s.sent("/v1/call-statistics")
			if len(sent) != tt.requests {
				t.Fatalf("requests = %d, want %d", len(sent), tt.requests)
			}
			for _, r := range sent {
				for _, parameter := range []string{"limit", "starting_after", "status", "outcome"} {
					if r.URL.Query().Has(parameter) {
						t.Errorf("the request has %s, which the API does not accept", parameter)
					}
				}
			}
		})
	}
}

func TestCallTotals_CoverThirtyDaysIfNoFilterSetsTheStart(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"?created_before=2026-06-04T10:00":                                "2026-05-05T10:00:00Z",
		"?created_before=2026-06-04T10:00&created_after=2026-06-01T10:00": "2026-06-01T10:00:00Z",
	} {
		s := newSite(t, gateway.Viewer)
		s.set("GET /v1/call-statistics", statistics)
		s.get(totalsPage + query)
		if got := s.sent("/v1/call-statistics")[0].URL.Query().Get("created_after"); got != want {
			t.Errorf("created_after of %s = %s, want %s", query, got, want)
		}
	}
	s := newSite(t, gateway.Viewer)
	s.set("GET /v1/call-statistics", refuse(`"created_after: the period has at most 366 days."`))
	w := s.get(totalsPage + "?created_after=2020-01-01T00:00")
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, "There are no totals for these filters.")
	if got := startOfTotals(""); time.Since(mustTime(t, got)) < totalsPeriod {
		t.Errorf("start without an end = %s, want %s ago", got, totalsPeriod)
	}
}

func mustTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The list of calls loads the totals after its own content, with the same filters.
func TestCalls_ListLoadsTheTotalsWithItsFilters(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	w := s.get("/w/" + workspaceID + "/calls?status=busy&starting_after=" + agentID)
	wantBody(t, w, `hx-get="/w/`+workspaceID+`/call-totals?status=busy" hx-trigger="load"`)
	if sent := s.sent("/v1/call-statistics"); len(sent) != 0 {
		t.Errorf("requests for totals by the list = %d, want 0", len(sent))
	}
}
