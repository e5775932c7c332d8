package httpapi

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/dialer/internal/agent"
)

// openingView is what a person hears first in a call of an agent.
type openingView struct {
	AgentID uuid.UUID `json:"agent_id"`
	// SpokenBy is who speaks the text: the model, the agent's own server (media_server), or none
	// for a scripted agent.
	SpokenBy string `json:"spoken_by"`
	Language string `json:"language"`
	// Text is the disclosure, and the recording notice if the calls are recorded. If Translated is
	// true, the model translates the text into the language.
	Text       string `json:"text"`
	Translated bool   `json:"translated"`
	Recorded   bool   `json:"recorded"`
	// Greeting follows the text. Its placeholders are filled in each call.
	Greeting string `json:"greeting"`
}

// readOpening handles GET /admin/v1/workspaces/{id}/agents/{agent_id}/opening. The text is the one
// that a call would begin with now.
func (a *API) readOpening(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "agent_id", "agent")
	if err != nil {
		return err
	}
	stored, err := a.store.AgentOpening(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.NotFound("agent")
	}
	if err != nil {
		return err
	}
	settings, err := agent.ReadSettings(stored.Settings)
	if err != nil {
		return err
	}
	spec := agent.Spec{Settings: settings}
	if stored.Recorded && a.recordings.Enabled {
		spec.Notice, spec.NoticeKnown = settings.NoticeText()
	}
	text, known := agent.FirstWords(spec)
	view := openingView{AgentID: id, SpokenBy: "model", Language: settings.LanguageOrDefault(), Text: text,
		Translated: !known, Recorded: spec.Notice != "", Greeting: settings.Greeting}
	switch settings.Kind {
	case agent.MediaWS:
		view.SpokenBy = "media_server"
	case agent.Scripted, "":
		view.SpokenBy, view.Text, view.Translated, view.Greeting = "none", "", false, ""
	}
	return httpserver.WriteJSON(w, http.StatusOK, view)
}
