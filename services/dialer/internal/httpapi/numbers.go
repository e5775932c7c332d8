package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// agentTimeout is how long a request waits for the record of a new agent from agents.v1. The record
// arrives within 5 s.
const agentTimeout = 5 * time.Second

type numberView struct {
	ID        uuid.UUID         `json:"id"`
	PhoneE164 string            `json:"phone_e164"`
	AgentID   uuid.UUID         `json:"agent_id"`
	CreatedAt openapi.Timestamp `json:"created_at"`
}

func viewNumber(n dialqueue.Number) numberView {
	return numberView{ID: n.NumberID, PhoneE164: n.PhoneE164, AgentID: n.AgentID,
		CreatedAt: openapi.TimestampOf(page.TimeOf(n.NumberID))}
}

// addNumber handles POST .../numbers. It responds 201. From then on, the agent answers inbound
// calls to the number.
func (a *API) addNumber(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		PhoneE164 *string `json:"phone_e164"`
		AgentID   *string `json:"agent_id"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if body.PhoneE164 == nil {
		return apierr.Validation("phone_e164", "is required: the number in E.164 form, like +14155550123.")
	}
	if body.AgentID == nil {
		return apierr.Validation("agent_id", "is required: the id of the agent that answers the number.")
	}
	number, ok := phone.Parse(*body.PhoneE164)
	if !ok {
		return apierr.Unprocessable("invalid_phone", "phone_e164 is not a number in E.164 form, like +14155550123.")
	}
	agentID, err := uuid.Parse(*body.AgentID)
	// uuid.Parse also accepts other notations, which have other lengths.
	if err != nil || len(*body.AgentID) != 36 {
		return apierr.Validation("agent_id", "is not a UUID.")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	added := dialqueue.Number{
		NumberID:    id,
		WorkspaceID: serviceauth.CallerFrom(r.Context()).WorkspaceID,
		PhoneE164:   string(number),
		AgentID:     agentID,
	}
	err = retryUnknown(r.Context(), store.ErrNoAgent, func() error { return a.store.AddNumber(r.Context(), added) })
	switch {
	case errors.Is(err, store.ErrTaken):
		return apierr.Conflict("number_exists", "The number %s is in use already; delete it there first.", number)
	case errors.Is(err, store.ErrNoAgent):
		return apierr.Unprocessable("invalid_agent", "agent_id names no agent of this workspace.")
	case err != nil:
		return err
	}
	return httpserver.WriteJSON(w, http.StatusCreated, viewNumber(added))
}

// retryUnknown repeats attempt while it returns unknownErr, for at most agentTimeout. The record of
// an agent that was just created can arrive late.
func retryUnknown(ctx context.Context, unknownErr error, attempt func() error) error {
	for start := time.Now(); ; {
		err := attempt()
		if !errors.Is(err, unknownErr) || time.Since(start) > agentTimeout {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// listNumbers handles GET .../numbers.
func (a *API) listNumbers(w http.ResponseWriter, r *http.Request) error {
	query, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	workspaceID := serviceauth.CallerFrom(r.Context()).WorkspaceID
	if query.After != uuid.Nil {
		cursor, err := a.store.Number(r.Context(), workspaceID, query.After)
		if err != nil {
			return err
		}
		if cursor == nil {
			return page.UnknownCursor()
		}
	}
	numbers, err := a.store.Numbers(r.Context(), workspaceID, query)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(query, numbers, viewNumber))
}

// readNumber handles GET .../numbers/{number_id}.
func (a *API) readNumber(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "number_id", "number")
	if err != nil {
		return err
	}
	number, err := a.store.Number(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return err
	}
	if number == nil {
		return apierr.NotFound("number")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewNumber(*number))
}

// removeNumber handles DELETE .../numbers/{number_id}. From the response on, inbound calls to the
// number are refused.
func (a *API) removeNumber(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "number_id", "number")
	if err != nil {
		return err
	}
	found, err := a.store.RemoveNumber(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return err
	}
	if !found {
		return apierr.NotFound("number")
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		Deleted bool      `json:"deleted"`
		ID      uuid.UUID `json:"id"`
	}{true, id})
}
