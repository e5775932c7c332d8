package httpapi

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

type personView struct {
	ID        uuid.UUID         `json:"id"`
	Name      string            `json:"name"`
	Email     *string           `json:"email"`
	CreatedAt openapi.Timestamp `json:"created_at"`
}

func viewPerson(p people.Person) personView {
	return personView{ID: p.ID, Name: p.Name, Email: p.Email, CreatedAt: openapi.TimestampOf(page.TimeOf(p.ID))}
}

type membershipView struct {
	WorkspaceID   *uuid.UUID  `json:"workspace_id"`
	WorkspaceName *string     `json:"workspace_name"`
	Role          people.Role `json:"role"`
	FromGroups    bool        `json:"from_groups"`
}

type sessionView struct {
	ID         uuid.UUID         `json:"id"`
	Method     people.Method     `json:"method"`
	SignedInAt openapi.Timestamp `json:"signed_in_at"`
	LastUsedAt openapi.Timestamp `json:"last_used_at"`
	ExpiresAt  openapi.Timestamp `json:"expires_at"`
	// RecentUntil is when the sign-in is no longer recent enough for actions such as an erasure.
	RecentUntil openapi.Timestamp `json:"recent_until"`
	Current     bool              `json:"current"`
}

type sessionList struct {
	Data    []sessionView `json:"data"`
	HasMore bool          `json:"has_more"` // always false: the list has no pages
}

func viewSession(s people.Session, current uuid.UUID) sessionView {
	return sessionView{
		ID: s.ID, Method: s.Method, SignedInAt: openapi.TimestampOf(s.SignedInAt),
		LastUsedAt: openapi.TimestampOf(s.LastUsedAt), ExpiresAt: openapi.TimestampOf(s.ExpiresAt()),
		RecentUntil: openapi.TimestampOf(s.RecentUntil()), Current: s.ID == current,
	}
}

// signInView is the body of the response to a sign-in. No other body contains a token.
type signInView struct {
	Token   string      `json:"token"`
	Session sessionView `json:"session"`
}

// newSignIn returns a new token and the data of its session. If the request contains a token, the
// session of that token ends with the sign-in.
func newSignIn(r *http.Request) (token string, signIn store.SignIn) {
	token = people.NewSessionToken()
	return token, store.SignIn{Hash: people.HashSecret(token), Previous: auth.PreviousToken(r),
		RequestID: actorOf(r).requestID, Route: r.URL.Path}
}

func writeSignIn(w http.ResponseWriter, token string, session people.Session) error {
	return httpserver.WriteJSON(w, http.StatusCreated,
		signInView{Token: token, Session: viewSession(session, session.ID)})
}

// signInWithCode handles POST /console/v1/sign-in/code. A code works once.
func (c *Console) signInWithCode(w http.ResponseWriter, r *http.Request) error {
	if !c.codes {
		return httpserver.NoRoute()
	}
	var body struct {
		Code string `json:"code"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	token, signIn := newSignIn(r)
	session, err := c.store.SignInWithCode(r.Context(), people.HashCode(body.Code), signIn)
	if errors.Is(err, pg.ErrNotFound) {
		return apierr.New(http.StatusUnauthorized, "invalid_code", "The code is unknown, used or expired. Create a new code.")
	}
	if err != nil {
		return err
	}
	return writeSignIn(w, token, session)
}

// readMe handles GET /console/v1/me: the person, the person's roles and the session.
func (c *Console) readMe(w http.ResponseWriter, r *http.Request) error {
	session := visitorOf(r).session
	person, err := c.store.Person(r.Context(), session.PersonID)
	if err != nil {
		return err
	}
	roles, err := c.memberships(r, session.PersonID)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		Person      personView       `json:"person"`
		Operator    bool             `json:"operator"`
		Memberships []membershipView `json:"memberships"`
		Session     sessionView      `json:"session"`
	}{viewPerson(person), session.Operator, roles, viewSession(session.Session, session.ID)})
}

func (d directory) memberships(r *http.Request, personID uuid.UUID) ([]membershipView, error) {
	found, err := d.store.Memberships(r.Context(), personID)
	if err != nil {
		return nil, err
	}
	views := []membershipView{}
	for _, m := range found {
		views = append(views, membershipView(m))
	}
	return views, nil
}

func (c *Console) listSessions(w http.ResponseWriter, r *http.Request) error {
	session := visitorOf(r).session
	found, err := c.store.Sessions(r.Context(), session.PersonID)
	if err != nil {
		return err
	}
	views := []sessionView{}
	for _, s := range found {
		views = append(views, viewSession(s, session.ID))
	}
	return httpserver.WriteJSON(w, http.StatusOK, sessionList{Data: views})
}

// revokeSessions handles DELETE /console/v1/sessions. It ends all sessions of the person.
func (c *Console) revokeSessions(w http.ResponseWriter, r *http.Request) error {
	if err := c.store.RevokeSessions(r.Context(), visitorOf(r).session.PersonID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// revokeSession handles DELETE /console/v1/sessions/{session_id}. The id "current" means the
// session of the request.
func (c *Console) revokeSession(w http.ResponseWriter, r *http.Request) error {
	session := visitorOf(r).session
	id := session.ID
	if httpserver.PathText(r, "session_id") != "current" {
		var err error
		if id, err = httpserver.PathID(r, "session_id", "session"); err != nil {
			return missing("session")
		}
	}
	err := c.store.RevokeSession(r.Context(), session.PersonID, id)
	if errors.Is(err, pg.ErrNotFound) {
		return missing("session")
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
