package gateway

import (
	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

// The roles of a person.
const (
	Operator   = "operator"
	Owner      = "owner"
	Developer  = "developer"
	Compliance = "compliance"
	Viewer     = "viewer"
)

// Page is one page of a list.
type Page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

// Person is a person who uses the console.
type Person struct {
	ID        uuid.UUID         `json:"id"`
	Name      string            `json:"name"`
	Email     *string           `json:"email"`
	CreatedAt openapi.Timestamp `json:"created_at"`
}

// Membership is a role of a person. The workspace is nil if the role is Operator.
type Membership struct {
	WorkspaceID   *uuid.UUID `json:"workspace_id"`
	WorkspaceName *string    `json:"workspace_name"`
	Role          string     `json:"role"`
	FromGroups    bool       `json:"from_groups"`
}

// SessionInfo describes a session of a person.
type SessionInfo struct {
	ID          uuid.UUID         `json:"id"`
	Method      string            `json:"method"`
	SignedInAt  openapi.Timestamp `json:"signed_in_at"`
	LastUsedAt  openapi.Timestamp `json:"last_used_at"`
	ExpiresAt   openapi.Timestamp `json:"expires_at"`
	RecentUntil openapi.Timestamp `json:"recent_until"`
	Current     bool              `json:"current"`
}

// Me is the response of GET /console/v1/me.
type Me struct {
	Person      Person       `json:"person"`
	Operator    bool         `json:"operator"`
	Memberships []Membership `json:"memberships"`
	Session     SessionInfo  `json:"session"`
}

// RoleIn returns the role of the person in a workspace, or "" if the person has none.
func (m Me) RoleIn(workspace uuid.UUID) string {
	if m.Operator {
		return Operator
	}
	for _, membership := range m.Memberships {
		if membership.WorkspaceID != nil && *membership.WorkspaceID == workspace {
			return membership.Role
		}
	}
	return ""
}

// Methods are the configured ways to sign in.
type Methods struct {
	OIDC     bool `json:"oidc"`
	Passkeys bool `json:"passkeys"`
	Codes    bool `json:"codes"`
}

// SignIn is the response to a sign-in.
type SignIn struct {
	Token   string      `json:"token"`
	Session SessionInfo `json:"session"`
}

// StartedSignIn is the response to the request that starts a sign-in.
type StartedSignIn struct {
	Attempt          string `json:"attempt"`
	AuthorizationURL string `json:"authorization_url"`
	Options          any    `json:"options,omitempty"`
}

// Workspace is a workspace as the operator API returns it.
type Workspace struct {
	ID       uuid.UUID `json:"id"`
	Name     string    `json:"name"`
	Plan     string    `json:"plan"`
	Currency string    `json:"currency"`
	Status   string    `json:"status"`
	Mode     string    `json:"mode"`
}

// Agent is an agent in a list of the operator API.
type Agent struct {
	ID   uuid.UUID `json:"id"`
	Name string    `json:"name"`
}

// Pause is a pause of dialing for the whole deployment, a workspace, an agent or a trunk.
type Pause struct {
	Level string     `json:"level"`
	ID    *uuid.UUID `json:"id"`
	openapi.Dialing
}

// Dialer is the part of GET /admin/v1/dialer that pages show.
type Dialer struct {
	Pauses []Pause `json:"pauses"`
}
