package pages

import (
	"encoding/csv"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

func TestSafeCell_ValueIsNotAFormula(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"=1+1": "'=1+1", "+1-cmd": "'+1-cmd", "x;＝1": "x;'＝1",
		"+14155550101": "+14155550101", "order 7": "order 7", "": "",
	} {
		if got := safeCell(text); got != want {
			t.Errorf("safeCell(%q) = %q, want %q", text, got, want)
		}
	}
}

func call(id, ref string) map[string]any {
	return map[string]any{
		"id":           id,
		"to":           "+14155550101",
		"from":         "+15005550006",
		"status":       "completed",
		"agent_id":     workspaceID,
		"direction":    "outbound",
		"external_ref": ref,
		"talk_seconds": 4,
		"created_at":   "2026-06-04T09:00:00.000Z",
	}
}

func TestCallsCSV_ContainsEveryPageOfTheFilteredList(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /v1/calls", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := `{"data":[` + jsonOf(t, call(workspaceID, "=cmd")) + `],"has_more":true}`
		if r.URL.Query().Get("starting_after") == workspaceID {
			page = `{"data":[` + jsonOf(t, call(requestID, "second")) + `],"has_more":false}`
		}
		if status := r.URL.Query().Get("status"); status != "completed" {
			t.Errorf("status = %q, want completed", status)
		}
		// the error is ignored: a failed write fails the test, because a row is missing
		_, _ = w.Write([]byte(page))
	}))
	w := s.get("/w/" + workspaceID + "/calls.csv?status=completed&done=x")
	wantStatus(t, w, http.StatusOK)
	wantHeader(t, w, "Content-Type", "text/csv; charset=utf-8")
	rows, err := csv.NewReader(strings.NewReader(w.Body.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	row := func(id, ref string) []string {
		return []string{id, "outbound", "+15005550006", "+14155550101", "completed", "", "4", workspaceID, "", ref,
			"2026-06-04T09:00:00.000Z"}
	}
	want := [][]string{
		{"id", "direction", "from", "to", "status", "outcome", "talk_seconds", "agent_id", "contact_id", "external_ref",
			"created_at"},
		row(workspaceID, "'=cmd"),
		row(requestID, "second"),
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// If a later page cannot be read, the connection is aborted. Otherwise the browser would save a
// part as the whole file.
func TestCallsCSV_FailedPageAbortsTheConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	s.set("GET /v1/calls", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("starting_after") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"data":[` + jsonOf(t, call(workspaceID, "")) + `],"has_more":true}`))
	}))
	defer func() {
		if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // a panic value
			t.Errorf("panic = %v, want http.ErrAbortHandler", got)
		}
	}()
	s.server.ServeHTTP(httptest.NewRecorder(), s.request("GET", "/w/"+workspaceID+"/calls.csv", nil))
}
