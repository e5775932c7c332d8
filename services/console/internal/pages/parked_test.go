package pages

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

func TestParked_RecordsAreListedAndReplayed(t *testing.T) {
	t.Parallel()
	const replay = parkedPath + "/" + agentID + "/replay"
	s := newSite(t, gateway.Operator)
	s.set("GET "+parkedPath, map[string]any{"has_more": true, "unavailable": []string{"dialer"}, "data": []any{
		map[string]any{"service": "calls", "topic": "dial-events.v1", "event_id": agentID, "key": "<b>key",
			"error": "newer than <script>x", "parked_at": updatedAt}}})
	w := s.get(parkedPage)
	wantStatus(t, w, http.StatusOK)
	for _, want := range []string{"dial-events.v1", "&lt;b&gt;key", "newer than &lt;script&gt;x",
		"did not respond: dialer", "more parked records", parkedPage + "/" + agentID + "/replay"} {
		wantBody(t, w, want)
	}
	if strings.Contains(w.Body.String(), "<script>x") {
		t.Error("the page contains a script of a record")
	}
	form := url.Values{"service": {"calls"}, "topic": {"dial-events.v1"}}
	page := parkedPage + "/" + agentID + "/replay"
	wantHeader(t, s.submit(page, form), "Location", parkedPage+"?done=not_confirmed")
	wantEqual(t, "replays without a reason", len(s.sent(replay)), 0)
	form.Set("reason", "Release 9 decodes it")
	for done, answer := range map[string]any{
		"record_replayed": map[string]any{"applied": 3, "parked": 0},
		"still_parked":    map[string]any{"applied": 0, "parked": 3},
		"not_parked":      refusal{status: 404, code: "not_found"},
		"replay_runs":     refusal{status: 409, code: "replay_runs"},
	} {
		s.set("POST "+replay, answer)
		wantHeader(t, s.submit(page, form), "Location", parkedPage+"?done="+done)
	}
	wantEqual(t, "body", s.body(replay), `{"service":"calls","topic":"dial-events.v1"}`)
	wantEqual(t, "reason", s.sent(replay)[0].Header.Get("Ringfence-Reason"), "Release 9 decodes it")
}

func TestParked_EmptyListShowsAMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("GET "+parkedPath, map[string]any{"has_more": false, "unavailable": []string{}, "data": []any{}})
	wantBody(t, s.get(parkedPage), "Nothing is parked")
	wantBody(t, s.get(parkedPage), `href="/operator/parked" aria-current="page"`)
}
