package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	minKey = 16
	maxKey = 1000
)

// keyView is the response about the key of an agent. It does not contain the key itself.
type keyView struct {
	AgentID   uuid.UUID         `json:"agent_id"`
	HasKey    bool              `json:"has_key"`
	UpdatedAt openapi.Timestamp `json:"updated_at"`
}

// putAgentKey handles PUT .../agent-keys/{agent_id}. The key authenticates requests to the agent's
// model, or signs the requests to the agent's media URL.
func (a *API) putAgentKey(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "agent_id", "agent")
	if err != nil {
		return err
	}
	workspaceID := serviceauth.CallerFrom(r.Context()).WorkspaceID
	key, fault := readKey(r)
	if fault != nil { // for an unknown agent, the response is 404 even if the body is invalid
		if err := a.keys.Known(r.Context(), workspaceID, id); err != nil {
			return missingKey(err)
		}
		return fault
	}
	var at time.Time
	err = retryUnknown(r.Context(), store.ErrAgentOfKey, func() error {
		at, err = a.keys.Put(r.Context(), workspaceID, id, key)
		return err
	})
	if err != nil {
		return missingKey(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, keyView{id, true, openapi.TimestampOf(at)})
}

func readKey(r *http.Request) (string, error) {
	var body struct {
		Key *string `json:"key"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return "", err
	}
	if body.Key == nil || len(*body.Key) < minKey || len(*body.Key) > maxKey ||
		strings.ContainsFunc(*body.Key, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return "", apierr.Validation(
			"key",
			"must be %d to %d printable ASCII characters without spaces.",
			minKey,
			maxKey,
		)
	}
	return *body.Key, nil
}

// readAgentKey handles GET .../agent-keys/{agent_id}.
func (a *API) readAgentKey(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "agent_id", "agent")
	if err != nil {
		return err
	}
	at, err := a.keys.Since(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return missingKey(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, keyView{id, true, openapi.TimestampOf(at)})
}

// removeAgentKey handles DELETE .../agent-keys/{agent_id}.
func (a *API) removeAgentKey(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "agent_id", "agent")
	if err != nil {
		return err
	}
	if err := a.keys.Remove(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id); err != nil {
		return missingKey(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		Deleted bool      `json:"deleted"`
		ID      uuid.UUID `json:"id"`
	}{true, id})
}

func missingKey(err error) error {
	switch {
	case errors.Is(err, store.ErrAgentOfKey):
		return apierr.NotFound("agent")
	case errors.Is(err, pg.ErrNotFound):
		return apierr.NotFound("key of this agent")
	}
	return err
}
