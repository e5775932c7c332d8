package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/people"
)

type invitationView struct {
	ID          uuid.UUID    `json:"id"`
	WorkspaceID *uuid.UUID   `json:"workspace_id"`
	Role        *people.Role `json:"role"`
	// PersonID is set if the invitation lets a person register a new passkey.
	PersonID   *uuid.UUID         `json:"person_id"`
	InvitedBy  string             `json:"invited_by"`
	CreatedAt  openapi.Timestamp  `json:"created_at"`
	ExpiresAt  openapi.Timestamp  `json:"expires_at"`
	AcceptedAt *openapi.Timestamp `json:"accepted_at"`
	AcceptedBy *uuid.UUID         `json:"accepted_by"`
}

func viewInvitation(i people.Invitation) invitationView {
	return invitationView{ID: i.ID, WorkspaceID: i.WorkspaceID, Role: i.Role, PersonID: i.PersonID, InvitedBy: i.InvitedBy,
		CreatedAt: openapi.TimestampOf(i.CreatedAt), ExpiresAt: openapi.TimestampOf(i.ExpiresAt),
		AcceptedAt: openapi.TimestampOrNull(i.AcceptedAt), AcceptedBy: i.AcceptedBy}
}

// newInvitationView is the body of the response that creates an invitation. No other response
// contains the token.
type newInvitationView struct {
	invitationView
	Token string  `json:"token"`
	URL   *string `json:"url"` // null if CONSOLE_URL is not set
}

func (d directory) addInvitation(
	w http.ResponseWriter, r *http.Request, invitation people.Invitation, lifetime time.Duration,
) error {
	var err error
	if invitation.ID, err = uuid.NewV7(); err != nil {
		return err
	}
	invitation.InvitedBy = actorOf(r).operator
	token := people.NewInvitationToken()
	made, err := d.store.AddInvitation(r.Context(), invitation, people.HashSecret(token), lifetime)
	if err != nil {
		return err
	}
	view := newInvitationView{invitationView: viewInvitation(made), Token: token}
	if d.url != nil {
		address := people.InvitationURL(d.url, token)
		view.URL = &address
	}
	return httpserver.WriteJSON(w, http.StatusCreated, view)
}

// createInvitation handles POST /console/v1/invitations.
func (d directory) createInvitation(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Role people.Role `json:"role"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if !body.Role.IsWorkspaceRole() {
		return apierr.Validation("role", "must be owner, developer, compliance or viewer.")
	}
	workspaceID := visitorOf(r).workspaceID
	return d.addInvitation(w, r, people.Invitation{WorkspaceID: &workspaceID, Role: &body.Role}, people.InvitationLifetime)
}

// inviteOperator handles POST /console/v1/operator-invitations.
func (d directory) inviteOperator(w http.ResponseWriter, r *http.Request) error {
	role := people.Operator
	return d.addInvitation(w, r, people.Invitation{Role: &role}, people.InvitationLifetime)
}

// createRecovery handles POST /console/v1/people/{person_id}/recovery. With the link, the person
// registers a new passkey. The registration deletes the person's other passkeys and ends the
// person's sessions.
func (d directory) createRecovery(w http.ResponseWriter, r *http.Request) error {
	id, err := personIDOf(r)
	if err != nil {
		return err
	}
	if _, err := d.store.Person(r.Context(), id); err != nil {
		return memberError(err)
	}
	return d.addInvitation(w, r, people.Invitation{PersonID: &id}, people.RecoveryLifetime)
}

// listInvitations handles GET /console/v1/invitations, and GET /console/v1/operator-invitations for
// the invitations of operators and the links for lost passkeys.
func (d directory) listInvitations(w http.ResponseWriter, r *http.Request) error {
	request, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := d.store.Invitations(r.Context(), scopeOfVisitor(r), request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, found, viewInvitation))
}

// scopeOfVisitor returns the workspace of the request. It is nil on a route that belongs to no
// workspace.
func scopeOfVisitor(r *http.Request) *uuid.UUID {
	workspaceID := visitorOf(r).workspaceID
	if workspaceID == uuid.Nil {
		return nil
	}
	return &workspaceID
}

// readInvitationOf handles GET /console/v1/invitations/{id} and operator-invitations/{id}.
func (d directory) readInvitationOf(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "invitation_id", "invitation")
	if err != nil {
		return missing("invitation")
	}
	found, err := d.store.Invitation(r.Context(), scopeOfVisitor(r), id)
	if errors.Is(err, pg.ErrNotFound) {
		return missing("invitation")
	}
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewInvitation(found))
}

// deleteInvitation handles DELETE /console/v1/invitations/{id} and operator-invitations/{id}.
func (d directory) deleteInvitation(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "invitation_id", "invitation")
	if err != nil {
		return missing("invitation")
	}
	err = d.store.DeleteInvitation(r.Context(), scopeOfVisitor(r), id)
	if errors.Is(err, pg.ErrNotFound) {
		return missing("invitation")
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type invitationBody struct {
	Invitation string `json:"invitation"`
}

// readInvitation handles POST /console/v1/sign-in/invitation. The token is in the body and not in
// the URL, because proxies write URLs to their logs.
func (c *Console) readInvitation(w http.ResponseWriter, r *http.Request) error {
	var body invitationBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	found, err := c.store.OpenInvitation(r.Context(), people.HashSecret(body.Invitation))
	if err != nil {
		return signInError(err)
	}
	var name *string
	if found.WorkspaceID != nil {
		workspace, err := c.store.Workspace(r.Context(), *found.WorkspaceID)
		if err != nil {
			return err
		}
		name = &workspace.Name
	}
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		invitationView
		WorkspaceName *string `json:"workspace_name"`
	}{viewInvitation(found), name})
}

// acceptInvitation handles POST /console/v1/invitations/accept, for a person who is signed in.
func (c *Console) acceptInvitation(w http.ResponseWriter, r *http.Request) error {
	var body invitationBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	found, err := c.store.AcceptInvitation(r.Context(), visitorOf(r).session.PersonID, people.HashSecret(body.Invitation))
	if err != nil {
		return signInError(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewInvitation(found))
}
