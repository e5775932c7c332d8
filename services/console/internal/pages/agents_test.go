package pages

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

const (
	agentsPage = "/w/" + workspaceID + "/agents"
	agentPage  = agentsPage + "/" + agentID
	agentPath  = "/admin/v1/workspaces/" + workspaceID + "/agents/" + agentID
	keyPath    = "/admin/v1/workspaces/" + workspaceID + "/agent-keys/" + agentID
)

func setAgent(s site) {
	agent := map[string]any{"id": agentID, "name": "Ada", "from_number": nil, "max_call_seconds": 600,
		"kind": "openai_realtime", "instructions": "Say <hello> & +14155550199", "voice": "marin",
		"created_at": updatedAt, "updated_at": updatedAt,
		"retiring_models": []any{map[string]any{"model": "old", "retires_on": "2026-12-01", "successor": "new"}}}
	s.set("GET "+agentPath, tagged{newTag, agent})
	s.set("GET /admin/v1/workspaces/"+workspaceID+"/agents", map[string]any{"data": []any{agent}, "has_more": true})
	s.set("GET "+agentPath+"/dialing", map[string]any{"state": "paused", "reason": "Hallucinates"})
	s.set("GET "+keyPath, map[string]any{"has_key": true})
}

func TestAgents_AreListed(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	setAgent(s)
	w := s.get(agentsPage)
	wantStatus(t, w, http.StatusOK)
	for _, want := range []string{agentPage, "Realtime model", "marin", "Model retires", "starting_after=" + agentID} {
		wantBody(t, w, want)
	}
	if strings.Contains(w.Body.String(), "agents/new") {
		t.Error("a viewer is offered to create an agent")
	}
}

func TestAgent_SettingsAreShownAsJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	setAgent(s)
	w := s.get(agentPage)
	wantStatus(t, w, http.StatusOK)
	for _, want := range []string{`"instructions": "Say <hello> & +14155550199"`, `"max_call_seconds": 600`,
		"Hallucinates",
		"The model old is retired on 2026-12-01.", "Its successor is new.", `name="delete" value="1"`, `data-match="Ada"`} {
		wantBody(t, w, want)
	}
	for _, field := range []string{`"from_number"`, `"updated_at"`, `"retiring_models"`} {
		if strings.Contains(w.Body.String(), field) {
			t.Errorf("the form contains %s", field)
		}
	}
}

func TestAgent_ViewersSeeMaskedSettingsWithoutAForm(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	setAgent(s)
	w := s.get(agentPage)
	wantBody(t, w, "+141••••••99")
	for _, text := range []string{"4155550199", `name="settings"`, `data-open="delete"`, `name="key"`} {
		if strings.Contains(w.Body.String(), text) {
			t.Errorf("the page of a viewer contains %s", text)
		}
	}
	if sent := s.sent(keyPath); len(sent) != 0 {
		t.Errorf("requests for the key = %d, want 0", len(sent))
	}
}

func TestAgent_ShowsWhatThePersonHearsFirst(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opening map[string]any
		want    []string
	}{
		"translated": {map[string]any{"spoken_by": "model", "language": "tlh", "text": "Hello <b>, call +14155550199.",
			"translated": true}, []string{"Hello &lt;b&gt;", "call +141••••••99.", "The calls are not recorded.",
			"The model translates the text into tlh.", `<blockquote lang="en">`}},
		"recorded": {map[string]any{"spoken_by": "media_server", "language": "de", "text": "Hallo.", "recorded": true,
			"greeting": "Guten Tag, {{name}}"}, []string{`<blockquote lang="de">Hallo.`, "Your own server receives this text",
			"the text contains the notice", "Guten Tag, {{name}}"}},
		"turned off": {map[string]any{"spoken_by": "model", "language": "en"}, []string{"the disclosure is turned off"}},
		"scripted":   {map[string]any{"spoken_by": "none", "language": "en"}, []string{"plays tones"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Viewer)
			setAgent(s)
			s.set("GET "+agentPath+"/opening", tt.opening)
			w := s.get(agentPage)
			for _, want := range tt.want {
				wantBody(t, w, want)
			}
		})
	}
	s := newSite(t, gateway.Viewer)
	setAgent(s)
	s.set("GET "+agentPath+"/opening", refusal{status: 503, code: "unavailable"})
	w := s.get(agentPage)
	wantStatus(t, w, http.StatusOK)
	if strings.Contains(w.Body.String(), `id="opening"`) {
		t.Error("the page shows first words that it could not read")
	}
}

func TestAgent_RemovedSettingsAreSentAsNull(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	setAgent(s)
	form := url.Values{"version": {newTag}, "name": {"Ada 2"},
		"settings": {`{"kind":"scripted","max_call_seconds":60}`}}
	wantHeader(t, s.submit(agentPage, form), "Location", agentPage+"?done=agent_changed")
	want := map[string]any{"name": "Ada 2", "kind": "scripted", "max_call_seconds": 60.0, "instructions": nil,
		"voice": nil}
	if diff := cmp.Diff(want, decode(t, s.body(agentPath))); diff != "" {
		t.Errorf("body differs (-want +got):\n%s", diff)
	}
}

func TestAgent_RefusedSettingsStayInTheForm(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version, settings, want string
		status, sent            int
	}{
		"no JSON":        {newTag, `{"kind":}`, "This is not a JSON object.", 422, 0},
		"a list":         {newTag, `["kind"]`, "This is not a JSON object.", 422, 0},
		"null":           {newTag, `null`, "This is not a JSON object.", 422, 0},
		"two objects":    {newTag, `{}}`, "This is not a JSON object.", 422, 0},
		"the id":         {newTag, `{"id":"1"}`, "id cannot be set here.", 422, 0},
		"an old form":    {oldTag, `{"kind":"x"}`, "Someone changed this in the meantime.", 412, 1},
		"no version":     {"", `{"kind":"x"}`, "Someone changed this in the meantime.", 412, 1},
		"an unknown one": {newTag, `{"kind":"x"}`, `id="settings-fault" role="alert">kind must be scripted`, 422, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Developer)
			setAgent(s)
			s.set("PATCH "+agentPath, refuse(`"kind must be scripted or media_ws."`))
			w := s.submit(agentPage, url.Values{"version": {tt.version}, "name": {"Ada"}, "settings": {tt.settings}})
			wantStatus(t, w, tt.status)
			wantBody(t, w, tt.want)
			wantBody(t, w, tt.settings+"</textarea>")
			wantBody(t, w, `name="version" value="&#34;3&#34;"`)
			sent := 0
			for _, r := range s.sent(agentPath) {
				if r.Method == http.MethodPatch {
					sent++
				}
			}
			if sent != tt.sent {
				t.Errorf("changes sent = %d, want %d", sent, tt.sent)
			}
		})
	}
}

func TestNewAgentForm_CreatesAnAgentOrShowsTheFault(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	wantBody(t, s.get(agentsPage+"/new"), `"disclosure"`)
	agents := "/admin/v1/workspaces/" + workspaceID + "/agents"
	s.set("POST "+agents, map[string]any{"id": agentID})
	form := url.Values{"name": {"Ada"}, "settings": {newAgentSettings}}
	wantHeader(t, s.submit(agentsPage+"/new", form), "Location", agentPage+"?done=agent_created")
	if body := decode(t, s.body(agents)); body["name"] != "Ada" || body["kind"] != "openai_realtime" {
		t.Errorf("body = %v, want the name and the kind", body)
	}
	s.set("POST "+agents, refuse(`"name is missing; name the agent."`))
	w := s.submit(agentsPage+"/new", url.Values{"settings": {""}})
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, `id="name-fault"`)
}

func TestAgentKey_IsSetAndDeletedAndNeverShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	setAgent(s)
	wantHeader(t, s.submit(agentPage+"/key", url.Values{"key": {"sk-secret"}}), "Location",
		agentPage+"?done=agent_key_set")
	if got, want := s.body(keyPath), `{"key":"sk-secret"}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	s.set("PUT "+keyPath, refuse(`"key is too short"`))
	w := s.submit(agentPage+"/key", url.Values{"key": {"sk-secret"}})
	wantBody(t, w, "key is too short")
	if strings.Contains(w.Body.String(), "sk-secret") {
		t.Error("the page contains the key")
	}
	wantHeader(t, s.submit(agentPage+"/key", url.Values{"delete": {"1"}}), "Location", agentPage+"?done=agent_key_deleted")
	if sent := s.sent(keyPath); sent[len(sent)-1].Method != http.MethodDelete {
		t.Errorf("last request for the key = %s, want DELETE", sent[len(sent)-1].Method)
	}
}

func TestAgent_IsDeletedOnlyIfItsNameWasTyped(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Developer)
	setAgent(s)
	for typed, want := range map[string]string{"ada": agentPage + "?done=not_confirmed",
		"Ada": agentsPage + "?done=agent_deleted"} {
		wantHeader(t, s.submit(agentPage+"/delete", url.Values{"confirmation": {typed}, "reason": {"x"}}), "Location", want)
	}
	deleted := 0
	for _, r := range s.sent(agentPath) {
		if r.Method == http.MethodDelete {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("deletions = %d, want 1", deleted)
	}
}

const numbersPage = "/w/" + workspaceID + "/numbers"

func TestNumbers_AreAddedAndRemovedByOperators(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	numbers := "/admin/v1/workspaces/" + workspaceID + "/numbers"
	number := map[string]any{"id": agentID, "phone_e164": "+14155550123", "agent_id": agentID}
	s.set("GET "+numbers, map[string]any{"data": []any{number}})
	s.set("GET "+numbers+"/"+agentID, number)
	wantBody(t, s.get(numbersPage), `data-match="+14155550123"`)

	form := url.Values{"phone_e164": {"+1 (415) 555-0123"}, "agent_id": {agentID}}
	wantHeader(t, s.submit(numbersPage, form), "Location", numbersPage+"?done=number_added")
	if got, want := s.body(numbers), `{"agent_id":"`+agentID+`","phone_e164":"+14155550123"}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	s.set("POST "+numbers, refusal{status: 409, code: "number_exists", message: "The number is in use already."})
	w := s.submit(numbersPage, form)
	wantStatus(t, w, http.StatusConflict)
	wantBody(t, w, "The number is in use already.")
	wantBody(t, w, `value="+1 (415) 555-0123"`)

	for typed, want := range map[string]string{"": "not_confirmed", "+14155550124": "not_confirmed",
		"+1 415 555 0123": "number_removed"} {
		got := s.submit(numbersPage+"/"+agentID+"/delete", url.Values{"confirmation": {typed}, "reason": {"x"}})
		wantHeader(t, got, "Location", numbersPage+"?done="+want)
	}
	deleted := 0
	for _, r := range s.sent(numbers + "/" + agentID) {
		if r.Method == http.MethodDelete {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("removals = %d, want 1", deleted)
	}
}

func TestNumbers_MembersSeeNoControls(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	s.set("GET /admin/v1/workspaces/"+workspaceID+"/numbers", map[string]any{"data": []any{
		map[string]any{"id": agentID, "phone_e164": "+14155550123", "agent_id": agentID}}})
	w := s.get(numbersPage)
	wantBody(t, w, "+141••••••23")
	for _, text := range []string{"4155550123", "data-open", `id="add"`} {
		if strings.Contains(w.Body.String(), text) {
			t.Errorf("the page of a viewer contains %s", text)
		}
	}
}
