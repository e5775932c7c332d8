package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

// These are the kinds of started sign-ins in the database.
const (
	oidcAttempt         = "oidc"
	passkeyAttempt      = "passkey"
	registrationAttempt = "registration"
)

// attemptBody is the body of a request that finishes a sign-in.
type attemptBody struct {
	// Attempt is the secret of the started sign-in. Only the browser that started it has the secret.
	Attempt string `json:"attempt"`
	// State and Code are the parameters with which the OpenID provider redirects the browser.
	State string `json:"state"`
	Code  string `json:"code"`
	// Credential is the response of the passkey, as the browser encodes it in JSON.
	Credential json.RawMessage `json:"credential"`
	// Name is the name of a new passkey.
	Name string `json:"name"`
}

type startedView struct {
	Attempt          string `json:"attempt"`
	AuthorizationURL string `json:"authorization_url,omitempty"`
	// Options are the options for navigator.credentials.create or navigator.credentials.get.
	Options any `json:"options,omitempty"`
}

// readSignIn handles GET /console/v1/sign-in/methods. It returns the sign-in methods that are
// configured.
func (c *Console) readSignIn(w http.ResponseWriter, _ *http.Request) error {
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		OIDC     bool `json:"oidc"`
		Passkeys bool `json:"passkeys"`
		Codes    bool `json:"codes"`
	}{c.oidc != nil, c.passkeys != nil, c.codes})
}

// saveAttempt stores the state of a started sign-in and writes the response.
func (c *Console) saveAttempt(w http.ResponseWriter, r *http.Request, kind string, state any, view startedView) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	view.Attempt = people.NewAttemptSecret()
	err = c.store.AddAttempt(r.Context(), people.HashSecret(view.Attempt), kind, text)
	if errors.Is(err, store.ErrTooManyAttempts) {
		refused := apierr.New(http.StatusTooManyRequests, "rate_limited",
			"Too many sign-ins were started. Wait a minute and start again.")
		refused.RetryAfter = time.Minute
		return refused
	}
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusCreated, view)
}

// takeAttempt ends a started sign-in and decodes its state. An attempt can be used only once, even
// if the sign-in then fails.
func (c *Console) takeAttempt(ctx context.Context, body attemptBody, kind string, state any) error {
	text, err := c.store.TakeAttempt(ctx, people.HashSecret(body.Attempt), kind)
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.New(http.StatusUnauthorized, "sign_in_expired",
			"This sign-in is unknown, finished or older than 10 minutes. Start again.")
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, state)
}

// startOIDC handles POST /console/v1/sign-in/oidc/start.
func (c *Console) startOIDC(w http.ResponseWriter, r *http.Request) error {
	if c.oidc == nil {
		return httpserver.NoRoute()
	}
	var body struct {
		Invitation *string `json:"invitation"`
		// Again is true if the provider must ask the person for credentials again.
		Again bool `json:"again"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	address, attempt, err := c.oidc.Start(r.Context(), body.Again)
	if err != nil {
		return providerError(r.Context(), err)
	}
	if body.Invitation != nil {
		hash := people.HashSecret(*body.Invitation)
		attempt.Invitation = hash[:]
	}
	return c.saveAttempt(w, r, oidcAttempt, attempt, startedView{AuthorizationURL: address})
}

// finishOIDC handles POST /console/v1/sign-in/oidc/finish.
func (c *Console) finishOIDC(w http.ResponseWriter, r *http.Request) error {
	if c.oidc == nil {
		return httpserver.NoRoute()
	}
	var body attemptBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	var attempt people.OIDCAttempt
	if err := c.takeAttempt(r.Context(), body, oidcAttempt, &attempt); err != nil {
		return err
	}
	identity, err := c.oidc.Finish(r.Context(), attempt, body.State, body.Code)
	if err != nil {
		return providerError(r.Context(), err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	token, signIn := newSignIn(r)
	signIn.AuthenticatedAt = identity.AuthenticatedAt
	session, err := c.store.SignInWithProvider(r.Context(), store.ProviderSignIn{
		Person: people.Person{ID: id, Name: identity.Name, Email: identity.Email, Issuer: &identity.Issuer,
			Subject: &identity.Subject},
		GroupRoles: identity.Roles, HasGroupRoles: identity.HasGroupRoles, Invitation: attempt.Invitation,
	}, signIn)
	if err != nil {
		return signInError(err)
	}
	return writeSignIn(w, token, session)
}

// providerError returns the error for a failed exchange with the OpenID provider.
func providerError(ctx context.Context, err error) error {
	if errors.Is(err, people.ErrRefused) {
		return refusedSignIn(ctx, err)
	}
	slog.WarnContext(ctx, "request to the OpenID provider failed", "error", err)
	return apierr.Unavailable("The OpenID provider")
}

// refusedSignIn returns a 401 and logs the reason. The client must not see the reason.
func refusedSignIn(ctx context.Context, err error) error {
	slog.WarnContext(ctx, "sign-in refused", "error", err)
	return apierr.New(http.StatusUnauthorized, "sign_in_refused", "The sign-in was refused. Start again.")
}

func signInError(err error) error {
	switch {
	case errors.Is(err, store.ErrNoAccess):
		return apierr.New(http.StatusForbidden, "no_access",
			"This person has no role. Ask an owner of the workspace for an invitation.")
	case errors.Is(err, store.ErrProviderOnly):
		return apierr.New(http.StatusForbidden, "no_access",
			"The roles of this person come from groups of the OpenID provider. Sign in through the provider.")
	case errors.Is(err, store.ErrNoInvitation):
		return noInvitation()
	case errors.Is(err, store.ErrAlreadyMember):
		return apierr.Conflict("already_member", "This person already has a role there. Sign in without the invitation.")
	}
	return err
}

func noInvitation() error {
	return apierr.New(http.StatusNotFound, "not_found",
		"The invitation is unknown, expired or accepted. Ask for a new one.")
}

// startPasskey handles POST /console/v1/sign-in/passkey/start.
func (c *Console) startPasskey(w http.ResponseWriter, r *http.Request) error {
	if c.passkeys == nil {
		return httpserver.NoRoute()
	}
	options, state, err := c.passkeys.StartSignIn()
	if err != nil {
		return err
	}
	return c.saveAttempt(w, r, passkeyAttempt, state, startedView{Options: options})
}

// finishPasskey handles POST /console/v1/sign-in/passkey/finish.
func (c *Console) finishPasskey(w http.ResponseWriter, r *http.Request) error {
	if c.passkeys == nil {
		return httpserver.NoRoute()
	}
	var body attemptBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	ctx := r.Context()
	var state webauthn.SessionData
	if err := c.takeAttempt(ctx, body, passkeyAttempt, &state); err != nil {
		return err
	}
	key, err := c.passkeys.FinishSignIn(ctx, state, body.Credential, c.personWithPasskeys)
	if errors.Is(err, people.ErrRefused) || errors.Is(err, pg.ErrNotFound) {
		return refusedSignIn(ctx, err)
	}
	if err != nil {
		return err
	}
	token, signIn := newSignIn(r)
	session, err := c.store.SignInWithPasskey(ctx, key, signIn)
	if errors.Is(err, pg.ErrNotFound) {
		return refusedSignIn(ctx, err)
	}
	if err != nil {
		return signInError(err)
	}
	return writeSignIn(w, token, session)
}

func (c *Console) personWithPasskeys(ctx context.Context, id uuid.UUID) (people.Person, []people.StoredPasskey, error) {
	person, err := c.store.Person(ctx, id)
	if err != nil {
		return person, nil, err
	}
	keys, err := c.store.Passkeys(ctx, id)
	return person, keys, err
}

// startRegistration handles POST /console/v1/sign-in/registration/start. A person without a session
// registers a passkey with an invitation.
func (c *Console) startRegistration(w http.ResponseWriter, r *http.Request) error {
	if c.passkeys == nil {
		return httpserver.NoRoute()
	}
	var body struct {
		Invitation string `json:"invitation"`
		Name       string `json:"name"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	hash := people.HashSecret(body.Invitation)
	invitation, err := c.store.OpenInvitation(r.Context(), hash)
	if err != nil {
		return signInError(err)
	}
	person := people.Person{Name: body.Name}
	if invitation.PersonID != nil {
		person, err = c.store.Person(r.Context(), *invitation.PersonID)
	} else if err = people.CheckName(body.Name); err == nil {
		person.ID, err = uuid.NewV7()
	}
	if err != nil {
		return err
	}
	options, state, err := c.passkeys.StartRegistration(person, nil)
	if err != nil {
		return err
	}
	started := people.Registration{Person: person, Invitation: hash[:], Session: state}
	return c.saveAttempt(w, r, registrationAttempt, started, startedView{Options: options})
}

// finishRegistration handles POST /console/v1/sign-in/registration/finish.
func (c *Console) finishRegistration(w http.ResponseWriter, r *http.Request) error {
	started, key, err := c.registered(r)
	if err != nil {
		return err
	}
	if started.Invitation == nil {
		return signInError(store.ErrNoInvitation)
	}
	token, signIn := newSignIn(r)
	session, err := c.store.SignUpWithPasskey(r.Context(), started.Person, key, started.Invitation, signIn)
	if err != nil {
		return signInError(err)
	}
	return writeSignIn(w, token, session)
}

// registered ends a started registration and returns the verified passkey.
func (c *Console) registered(r *http.Request) (started people.Registration, key people.StoredPasskey, err error) {
	if c.passkeys == nil {
		return started, key, httpserver.NoRoute()
	}
	var body attemptBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return started, key, err
	}
	if body.Name == "" {
		body.Name = "Passkey"
	}
	if err := people.CheckName(body.Name); err != nil {
		return started, key, err
	}
	if err := c.takeAttempt(r.Context(), body, registrationAttempt, &started); err != nil {
		return started, key, err
	}
	key, err = c.passkeys.FinishRegistration(started, body.Credential)
	if errors.Is(err, people.ErrRefused) {
		return started, key, refusedSignIn(r.Context(), err)
	}
	key.Name = body.Name
	return started, key, err
}
