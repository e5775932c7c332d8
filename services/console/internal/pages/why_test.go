package pages

import (
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/services/console/internal/gateway"
)

// setOptedOut sets the responses for a number that was called, opted out in the call, and was
// refused after that.
func setOptedOut(s site) {
	s.set("POST /v1/decisions/preview", map[string]any{"phone_e164": "+14155550196", "at": "2026-06-04T10:00:00.000Z",
		"result": "closed", "rule": "opt_out", "code": "recipient_dnd", "message": "This number is opted out of calls.",
		"gates": []any{map[string]any{"gate": "opt_out", "result": "failed", "checked": "dnd_status dnd",
			"reason": "an opt-out is on record"}}})
	s.set("GET /v1/call-requests", map[string]any{"data": []any{map[string]any{"id": itemID, "status": "completed",
		"agent_id": agentID, "to": "+14155550196", "dialed_at": "2026-06-04T09:00:01.000Z",
		"created_at": "2026-06-04T09:00:00.000Z"}}})
	s.set("GET /v1/decisions", map[string]any{"data": []any{
		map[string]any{"id": agentID, "call_request_id": agentID, "kind": "precheck", "result": "closed",
			"code": "recipient_dnd", "message": "This number is opted out of calls.",
			"judged_at": "2026-06-04T09:30:00.000Z"},
		map[string]any{"id": itemID, "call_request_id": itemID, "kind": "precheck", "result": "open",
			"judged_at": "2026-06-04T09:00:00.000Z"},
	}})
	s.set("GET "+admin+"/consent-records", map[string]any{"data": []any{
		map[string]any{"id": itemID, "kind": "opt_out", "source": "call", "before": "unknown", "after": "dnd",
			"evidence":    map[string]any{"call_id": agentID, "said": "Never call <b>me"},
			"occurred_at": "2026-06-04T09:02:03.000Z"},
	}})
}

const whyPage = home + "/why?phone=%2B14155550196"

func TestWhy_ShowsTheOptOutAndTheLaterRefusal(t *testing.T) {
	t.Parallel()
	for language, wants := range map[string][]string{
		"en": {"Opted out: <time", `datetime="2026-06-04T09:02:03Z"`, "The person said:", "None on record → Opted out",
			"an opt-out is on record · Opt-out: Opted out", `datetime="2026-06-04T09:30:00Z"`,
			"A call was ordered and refused. The number was not called.",
			"The number was called, before the refusal. Dialed: <time", `datetime="2026-06-04T09:00:01Z"`},
		"de": {"Die Person sagte:", "Keines bekannt → Abgemeldet", "Opt-out: Abgemeldet",
			"Ein Anruf wurde bestellt und abgelehnt. Die Nummer wurde nicht angerufen.",
			"Die Nummer wurde angerufen, vor der Ablehnung. Gewählt: <time"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Owner)
			setOptedOut(s)
			r := s.request("GET", whyPage, nil)
			r.Header.Set("Accept-Language", language)
			w := s.do(r)
			wantStatus(t, w, http.StatusOK)
			for _, want := range append(wants, "<blockquote>Never call &lt;b&gt;me</blockquote>",
				`<a href="`+home+"/calls/"+agentID+`">`) {
				wantBody(t, w, want)
			}
			for _, wrong := range []string{"dnd_status", "The number was called.", "Die Nummer wurde angerufen.",
				// a refused order has no call request
				home + "/call-requests/" + agentID} {
				wantEqual(t, wrong, strings.Contains(w.Body.String(), wrong), false)
			}
		})
	}
}

func TestWhy_ViewersDoNotSeeTheWordsOfThePerson(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	setOptedOut(s)
	w := s.get(whyPage)
	wantStatus(t, w, http.StatusOK)
	wantBody(t, w, "This number is opted out of calls.")
	wantEqual(t, "quote", strings.Contains(w.Body.String(), "Never call"), false)
}

// A call request after the refusal is the newest answer.
func TestWhy_RefusalBeforeTheNewestRequestIsOnlyInTheDecisions(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Owner)
	setOptedOut(s)
	s.set("GET /v1/call-requests", map[string]any{"data": []any{map[string]any{"id": itemID, "status": "completed",
		"agent_id": agentID, "dialed_at": "2026-06-04T11:00:01.000Z", "created_at": "2026-06-04T11:00:00.000Z"}}})
	w := s.get(whyPage)
	wantBody(t, w, "The number was called. Dialed: <time")
	wantEqual(t, "refusal", strings.Contains(w.Body.String(), `id="refusal"`), false)
}
