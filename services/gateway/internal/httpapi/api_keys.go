package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/workspaces"
)

type keyView struct {
	ID        uuid.UUID          `json:"id"`
	Name      string             `json:"name"`
	Access    serviceauth.Access `json:"access"`
	Prefix    string             `json:"prefix"`
	CreatedAt openapi.Timestamp  `json:"created_at"`
	RevokedAt *openapi.Timestamp `json:"revoked_at"`
}

func viewKey(k secrets.APIKey) keyView {
	return keyView{ID: k.ID, Name: k.Name, Access: k.Access, Prefix: k.Prefix,
		CreatedAt: openapi.TimestampOf(page.TimeOf(k.ID)), RevokedAt: openapi.TimestampOrNull(k.RevokedAt)}
}

// keyState returns the state of a key for the audit log, without the secret.
func keyState(k secrets.APIKey) []byte {
	state, err := json.Marshal(viewKey(k))
	if err != nil {
		return nil
	}
	return state
}

// newKey is the body of the response that creates a key. No other response contains the secret.
type newKey struct {
	ID     uuid.UUID          `json:"id"`
	Key    string             `json:"key"`
	Access serviceauth.Access `json:"access"`
}

type createKey struct {
	Name   string             `json:"name"`
	Access serviceauth.Access `json:"access"`
}

func (b createKey) check() error {
	if strings.TrimSpace(b.Name) == "" || utf8.RuneCountInString(b.Name) > 200 {
		return apierr.Validation("name", "must be 1 to 200 characters long.")
	}
	if b.Access != serviceauth.Read && b.Access != serviceauth.Write {
		return apierr.Validation("access", "must be read or write.")
	}
	return nil
}

func (a *Admin) createKey(w http.ResponseWriter, r *http.Request) error {
	owner, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	var body createKey
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	pending, err := actorOf(r).pendingEntry(r, template(r), &owner.ID)
	if err != nil {
		return err
	}
	secret, prefix := secrets.GenerateAPIKey(owner.Mode == workspaces.Test)
	key := secrets.APIKey{ID: id, WorkspaceID: owner.ID, Name: body.Name, Access: body.Access, Prefix: prefix}
	saved, err := a.store.AddKey(r.Context(), key, a.pepper.Hash(secret), doneEntry(pending, http.StatusCreated), keyState)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return httpserver.WriteJSON(w, http.StatusCreated, newKey{ID: saved.ID, Key: secret, Access: saved.Access})
}

func (a *Admin) listKeys(w http.ResponseWriter, r *http.Request) error {
	owner, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	request, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := a.store.Keys(r.Context(), owner.ID, request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, found, viewKey))
}

func (a *Admin) readKey(w http.ResponseWriter, r *http.Request) error {
	return a.withKey(w, r, func(owner, id uuid.UUID) (secrets.APIKey, error) {
		return a.store.Key(r.Context(), owner, id)
	})
}

// revokeKey handles DELETE of an API key. After the response, every replica refuses requests with
// the key. If the key is already revoked, nothing changes.
func (a *Admin) revokeKey(w http.ResponseWriter, r *http.Request) error {
	return a.withKey(w, r, func(owner, id uuid.UUID) (secrets.APIKey, error) {
		pending, err := actorOf(r).pendingEntry(r, template(r), &owner)
		if err != nil {
			return secrets.APIKey{}, err
		}
		saved, err := a.store.RevokeKey(r.Context(), owner, id, doneEntry(pending, http.StatusOK), keyState)
		return saved, err
	})
}

func (a *Admin) withKey(w http.ResponseWriter, r *http.Request, action func(owner, id uuid.UUID) (secrets.APIKey,
	error)) error {
	owner, err := a.workspaceOf(r)
	if err != nil {
		return err
	}
	id, err := httpserver.PathID(r, "key_id", "key")
	if err != nil {
		return err
	}
	key, err := action(owner.ID, id)
	if errors.Is(err, pg.ErrNotFound) {
		return missing("key")
	}
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewKey(key))
}
