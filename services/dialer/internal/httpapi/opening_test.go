package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestOpening_IsTheTextThatACallBeginsWith(t *testing.T) {
	t.Parallel()
	o := open(t)
	path := "/admin/v1/workspaces/" + o.workspace.String() + "/agents/" + o.agent.String() + "/opening"
	const disclosure, notice = "Hello, you are talking to an AI assistant.",
		"This call is recorded. If you do not want that, please say so."
	for name, tt := range map[string]struct {
		settings                 string
		recorded                 bool
		spokenBy, language, text string
		translated               bool
		greeting                 string
	}{
		"defaults": {settings: `{"kind":"openai_realtime"}`, spokenBy: "model", language: "en", text: disclosure},
		"a recorded call": {settings: `{"kind":"openai_realtime"}`, recorded: true, spokenBy: "model", language: "en",
			text: disclosure + " " + notice},
		"own texts": {settings: `{"kind":"openai_live","language":"de","greeting":"Hallo {{name}}",
			"disclosure":{"text":"Ich bin eine KI."},"recording":{"notice":"Wir nehmen auf."}}`, recorded: true,
			spokenBy: "model", language: "de", text: "Ich bin eine KI. Wir nehmen auf.", greeting: "Hallo {{name}}"},
		"turned off": {settings: `{"kind":"openai_realtime","disclosure":{"off_reason":"staff"}}`, spokenBy: "model",
			language: "en"},
		"a language without a sentence": {settings: `{"kind":"openai_realtime","language":"tlh"}`, spokenBy: "model",
			language: "tlh", text: disclosure, translated: true},
		"an own server": {settings: `{"kind":"media_ws","media_url":"wss://agent.example.com/"}`, recorded: true,
			spokenBy: "media_server", language: "en", text: disclosure + " " + notice},
		"a scripted agent": {settings: `{"kind":"scripted","greeting":"Hello"}`, spokenBy: "none", language: "en"},
	} {
		// The subtests change the same agent, so they are not parallel.
		t.Run(name, func(t *testing.T) {
			o.exec(t, `UPDATE agents SET settings = $2::json WHERE agent_id = $1`, o.agent, tt.settings)
			o.exec(t, `INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second,
				destinations, recordings) VALUES ($1, 1, 'active', true, 5, 5, '{}', $2)
				ON CONFLICT (workspace_id) DO UPDATE SET recordings = EXCLUDED.recordings`, o.workspace, tt.recorded)
			status, got, body := o.sendOperator(t, http.MethodGet, path, "")
			if status != http.StatusOK {
				t.Fatalf("status = %d %s, want 200", status, body)
			}
			want := map[string]any{"agent_id": o.agent.String(), "spoken_by": tt.spokenBy, "language": tt.language,
				"text": tt.text, "translated": tt.translated, "recorded": tt.recorded, "greeting": tt.greeting}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("opening (-want +got):\n%s", diff)
			}
		})
	}
	other := "/admin/v1/workspaces/" + o.workspace.String() + "/agents/" + uuid.NewString() + "/opening"
	if status, _, body := o.sendOperator(t, http.MethodGet, other, ""); status != http.StatusNotFound {
		t.Errorf("an unknown agent: %d %s, want 404", status, body)
	}
}

func (o fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := o.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
