package httpapi

import (
	"encoding/base64"
	"errors"
	"net/http"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

type passkeyView struct {
	ID         string             `json:"id"`
	Name       string             `json:"name"`
	CreatedAt  openapi.Timestamp  `json:"created_at"`
	LastUsedAt *openapi.Timestamp `json:"last_used_at"`
}

func viewPasskey(k people.StoredPasskey) passkeyView {
	return passkeyView{ID: base64.RawURLEncoding.EncodeToString(k.ID), Name: k.Name,
		CreatedAt: openapi.TimestampOf(k.CreatedAt), LastUsedAt: openapi.TimestampOrNull(k.LastUsedAt)}
}

func (c *Console) listPasskeys(w http.ResponseWriter, r *http.Request) error {
	found, err := c.store.Passkeys(r.Context(), visitorOf(r).session.PersonID)
	if err != nil {
		return err
	}
	views := []passkeyView{}
	for _, k := range found {
		views = append(views, viewPasskey(k))
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		Data []passkeyView `json:"data"`
	}{views})
}

// startNewPasskey handles POST /console/v1/passkeys/start, for a person who is signed in.
func (c *Console) startNewPasskey(w http.ResponseWriter, r *http.Request) error {
	if c.passkeys == nil {
		return httpserver.NoRoute()
	}
	person, known, err := c.personWithPasskeys(r.Context(), visitorOf(r).session.PersonID)
	if err != nil {
		return err
	}
	options, state, err := c.passkeys.StartRegistration(person, known)
	if err != nil {
		return err
	}
	started := people.Registration{Person: person, Session: state}
	return c.saveAttempt(w, r, registrationAttempt, started, startedView{Options: options})
}

// finishNewPasskey handles POST /console/v1/passkeys/finish.
func (c *Console) finishNewPasskey(w http.ResponseWriter, r *http.Request) error {
	started, key, err := c.registered(r)
	if err != nil {
		return err
	}
	if started.Invitation != nil || started.Person.ID != visitorOf(r).session.PersonID {
		return missing("registration")
	}
	if err := c.store.AddPasskey(r.Context(), key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *Console) deletePasskey(w http.ResponseWriter, r *http.Request) error {
	id, err := base64.RawURLEncoding.DecodeString(httpserver.PathText(r, "passkey_id"))
	if err != nil {
		return missing("passkey")
	}
	err = c.store.DeletePasskey(r.Context(), visitorOf(r).session.PersonID, id)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return missing("passkey")
	case errors.Is(err, store.ErrLastPasskey):
		return apierr.Conflict("last_passkey", "The last passkey cannot be deleted. Register another one first.")
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
