package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// maxReason is the maximum length of the reason for a change, in characters.
const maxReason = 500

// viewDialing returns the response about the state of dialing. After the end of a pause, the
// response still contains the fields of the pause.
func viewDialing(s dialqueue.DialingState) openapi.Dialing {
	view := openapi.Dialing{State: openapi.DialingStateActive}
	if s.Paused {
		view.State = openapi.DialingStatePaused
	}
	if s.SetAt == nil {
		return view
	}
	view.Reason, view.Until = nilIfEmpty(s.Reason), openapi.TimestampOrNull(s.Until)
	view.SetAt = openapi.TimestampOrNull(s.SetAt)
	view.SetBy = viewActor(s.Actor)
	return view
}

// viewActor returns who changed the state. An earlier version of the dialer stored persons as
// operators, without a name.
func viewActor(actor dialqueue.Actor) *openapi.DialingActor {
	if id, isPerson := (serviceauth.Caller{Operator: actor.Name}).Person(); isPerson {
		actor = dialqueue.Actor{Type: dialqueue.ActorUser, ID: &id}
	}
	return &openapi.DialingActor{
		Type: openapi.DialingActorType(actor.Type), ID: actor.ID, Name: nilIfEmpty(actor.Name),
	}
}

type dialingBody struct {
	State  *string         `json:"state"`
	Reason *string         `json:"reason"`
	Until  json.RawMessage `json:"until"`
}

// change validates the body of a request that pauses or resumes dialing. A reason is required for a
// pause, and optional for a resume.
func (b dialingBody) change(now time.Time) (change dialqueue.DialingChange, err error) {
	switch {
	case b.State == nil:
		return change, apierr.Validation("state", "is required: paused or active.")
	case *b.State != string(openapi.DialingStatePaused) && *b.State != string(openapi.DialingStateActive):
		return change, apierr.Validation("state", "must be paused or active.")
	}
	change.Paused = *b.State == string(openapi.DialingStatePaused)
	if b.Reason != nil {
		change.Reason = strings.TrimSpace(*b.Reason)
	}
	switch {
	case change.Paused && change.Reason == "":
		return change, apierr.Validation("reason", "is required: why dialing is paused.")
	case utf8.RuneCountInString(change.Reason) > maxReason:
		return change, apierr.Validation("reason", "must have at most %d characters.", maxReason)
	}
	change.Until, err = b.readUntil(change.Paused, now)
	return change, err
}

func (b dialingBody) readUntil(paused bool, now time.Time) (*time.Time, error) {
	if !paused || len(b.Until) == 0 || string(b.Until) == "null" {
		return nil, nil
	}
	var text string
	if err := json.Unmarshal(b.Until, &text); err != nil {
		return nil, apierr.Validation("until", "must be a date-time with an offset, such as 2026-06-04T09:00:00Z.")
	}
	at, err := httpserver.ParseTime(text)
	switch {
	case err != nil:
		return nil, apierr.Validation("until", "must be a date-time with an offset, such as 2026-06-04T09:00:00Z.")
	case !at.After(now):
		return nil, apierr.Validation("until", "must be in the future.")
	case at.After(now.AddDate(1, 0, 1)):
		return nil, apierr.Validation("until", "must be at most 366 days ahead.")
	}
	return &at, nil
}

func actorOf(c serviceauth.Caller) dialqueue.Actor {
	if id, isPerson := c.Person(); isPerson {
		return dialqueue.Actor{Type: dialqueue.ActorUser, ID: &id, Name: c.PersonName}
	}
	if c.Operator != "" {
		return dialqueue.Actor{Type: dialqueue.ActorOperator, Name: c.Operator}
	}
	actor := dialqueue.Actor{Type: dialqueue.ActorAPIKey}
	if c.KeyID != uuid.Nil {
		actor.ID = &c.KeyID
	}
	return actor
}

// scopeOf returns the scope of a request. If there is no such scope, the error has the status 404.
type scopeOf func(*http.Request) (dialqueue.PauseScope, error)

// readDialing handles GET .../dialing.
func (a *API) readDialing(scopeOf scopeOf) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		scope, err := scopeOf(r)
		if err != nil {
			return err
		}
		state, err := a.store.Dialing(r.Context(), scope)
		if err != nil {
			return err
		}
		return httpserver.WriteJSON(w, http.StatusOK, viewDialing(state))
	}
}

// putDialing handles PUT .../dialing. After a pause, no process sends an INVITE for the scope later
// than 2 s after the response.
func (a *API) putDialing(scopeOf scopeOf) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		scope, err := scopeOf(r)
		if err != nil {
			return err
		}
		var body dialingBody
		if err := httpserver.DecodeJSON(r, &body); err != nil {
			return err
		}
		change, err := body.change(time.Now())
		if err != nil {
			return err
		}
		change.Actor = actorOf(serviceauth.CallerFrom(r.Context()))
		state, err := a.store.SetDialing(r.Context(), scope, change)
		if errors.Is(err, store.ErrNoAgent) { // the agent was deleted after scopeOf had found it
			return apierr.NotFound("agent")
		}
		if err != nil {
			return err
		}
		return httpserver.WriteJSON(w, http.StatusOK, viewDialing(state))
	}
}

func everythingScope(*http.Request) (dialqueue.PauseScope, error) {
	return dialqueue.PauseScope{Level: dialqueue.PauseEverything}, nil
}

// workspaceScope returns the scope of a workspace. The gateway has already checked that the
// workspace exists.
func workspaceScope(r *http.Request) (dialqueue.PauseScope, error) {
	return dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: serviceauth.CallerFrom(r.Context()).WorkspaceID}, nil
}

func (a *API) agentScope(r *http.Request) (dialqueue.PauseScope, error) {
	id, err := httpserver.PathID(r, "agent_id", "agent")
	if err != nil {
		return dialqueue.PauseScope{}, err
	}
	found, err := a.store.HasAgent(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return dialqueue.PauseScope{}, err
	}
	if !found {
		return dialqueue.PauseScope{}, apierr.NotFound("agent")
	}
	return dialqueue.PauseScope{Level: dialqueue.PauseAgent, ID: id}, nil
}

func (a *API) trunkScope(r *http.Request) (dialqueue.PauseScope, error) {
	id, err := trunkID(r)
	if err != nil {
		return dialqueue.PauseScope{}, err
	}
	if _, err := a.trunks.Find(r.Context(), id); errors.Is(err, pg.ErrNotFound) {
		return dialqueue.PauseScope{}, apierr.NotFound("trunk")
	} else if err != nil {
		return dialqueue.PauseScope{}, err
	}
	return dialqueue.PauseScope{Level: dialqueue.PauseTrunk, ID: id}, nil
}
