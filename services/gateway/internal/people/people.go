// Package people defines the people who use the console, their roles and their sessions. It
// verifies sign-ins: through an OpenID provider, and with passkeys.
package people

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/workspaces"
)

const (
	// IdleTimeout is the time without a request after which a session ends.
	IdleTimeout = 30 * time.Minute
	// MaxAge is the time after the sign-in at which every session ends.
	MaxAge = 12 * time.Hour
	// RecentSignIn is the maximum age of the sign-in for routes that need a recent sign-in.
	RecentSignIn = 15 * time.Minute
	// ReplacedTokenLifetime is how long a token can be used after it was replaced. The client may
	// have sent requests with this token before it received the new one.
	ReplacedTokenLifetime = 5 * time.Second
	// InvitationLifetime is the time in which an invitation can be accepted.
	InvitationLifetime = 7 * 24 * time.Hour
	// RecoveryLifetime is the time in which a person can register a new passkey with a link.
	RecoveryLifetime = 24 * time.Hour
	// CodeLifetime is the time in which a sign-in code of the local stack can be used.
	CodeLifetime = 10 * time.Minute
	// AttemptLifetime is the time in which a started sign-in must be finished.
	AttemptLifetime = 10 * time.Minute
)

// SessionLimit is the number of requests per minute of one session.
const SessionLimit ratelimit.Policy = 1200

// Role determines what a person may do, in one workspace or (Operator) in all workspaces.
type Role string

// These are the roles of a person.
const (
	Operator   Role = "operator"
	Owner      Role = "owner"
	Developer  Role = "developer"
	Compliance Role = "compliance"
	Viewer     Role = "viewer"
)

// WorkspaceRoles returns the roles that a person can have in one workspace.
func WorkspaceRoles() []Role { return []Role{Owner, Developer, Compliance, Viewer} }

// IsWorkspaceRole reports whether the role belongs to one workspace.
func (r Role) IsWorkspaceRole() bool {
	return r == Owner || r == Developer || r == Compliance || r == Viewer
}

// Access returns the access that the gateway grants to this role in requests to other services.
func (r Role) Access() serviceauth.Access {
	if r == Viewer {
		return serviceauth.Read
	}
	return serviceauth.Write
}

// Person is a person who uses the console.
type Person struct {
	ID    uuid.UUID
	Name  string
	Email *string
	// Issuer and Subject identify the person at the OpenID provider. They are nil if the person
	// signs in with passkeys only.
	Issuer    *string
	Subject   *string
	CreatedAt time.Time
}

// CheckName returns 422 if the name of a person or passkey is empty, too long, or contains
// invisible characters. With invisible characters, the name could look like another name.
func CheckName(name string) error {
	if strings.TrimSpace(name) == "" || utf8.RuneCountInString(name) > 200 {
		return apierr.Validation("name", "must be 1 to 200 characters long.")
	}
	if strings.ContainsFunc(name, isInvisible) {
		return apierr.Validation("name", "must not contain control or format characters.")
	}
	return nil
}

// isInvisible reports whether a character controls or formats the text around it.
func isInvisible(character rune) bool { return unicode.In(character, unicode.Cc, unicode.Cf) }

// Membership is the role of a person in a workspace.
type Membership struct {
	// WorkspaceID is nil if Role is Operator.
	WorkspaceID   *uuid.UUID
	WorkspaceName *string
	Role          Role
	FromGroups    bool
}

// Member is a person with the person's role in one workspace.
type Member struct {
	Person
	Role       Role
	FromGroups bool
}

// Grant contains the role of a person in one workspace, and the status of this workspace.
type Grant struct {
	Role   Role
	Status workspaces.Status
}

// Method is a sign-in method.
type Method string

// These are the sign-in methods.
const (
	ByOIDC    Method = "oidc"
	ByPasskey Method = "passkey"
	ByCode    Method = "code"
)

// Session is a session of a person. The token of the session is not stored.
type Session struct {
	ID         uuid.UUID
	PersonID   uuid.UUID
	PersonName string
	Method     Method
	SignedInAt time.Time
	// AuthenticatedAt is when the person proved the identity. This can be before the sign-in, if
	// the person already had a session at the OpenID provider.
	AuthenticatedAt time.Time
	LastUsedAt      time.Time
	// Replace is true if a role of the person has changed and the token must be replaced.
	Replace bool
	// Operator is true if the person is an operator.
	Operator bool
}

// ExpiresAt returns the latest time at which the session ends, even if it is used continuously.
func (s Session) ExpiresAt() time.Time { return s.SignedInAt.Add(MaxAge) }

// Actor returns the name of the person in the audit log and in requests to other services. It
// contains the id, because a person could choose a name that looks like the name of another person.
func (s Session) Actor() string { return ActorPrefix + s.PersonID.String() }

// ActorPrefix is the start of the audit names of people. No operator token can have such a name.
const ActorPrefix = "person:"

// RecentUntil returns the time at which the sign-in is no longer recent enough for routes that need
// a recent sign-in.
func (s Session) RecentUntil() time.Time { return s.AuthenticatedAt.Add(RecentSignIn) }

// IsRecent reports whether the sign-in is recent enough for routes that need a recent sign-in.
func (s Session) IsRecent(now time.Time) bool { return now.Before(s.RecentUntil()) }

// Invitation is a link with which a person receives a role, or registers a new passkey.
type Invitation struct {
	ID          uuid.UUID
	WorkspaceID *uuid.UUID
	// Role is nil if the person PersonID only registers a new passkey.
	Role       *Role
	PersonID   *uuid.UUID
	InvitedBy  string
	CreatedAt  time.Time
	ExpiresAt  time.Time
	AcceptedAt *time.Time
	AcceptedBy *uuid.UUID
}

// These are the prefixes of the secrets of this package.
const (
	sessionPrefix    = "rfs_"
	invitationPrefix = "rfi_"
	attemptPrefix    = "rfa_"
)

// secretLength is the number of characters that encode the 256 random bits of a secret.
const secretLength = 52

// NewSessionToken returns a new token of a session.
func NewSessionToken() string { return sessionPrefix + randomText() }

// NewInvitationToken returns a new token of an invitation.
func NewInvitationToken() string { return invitationPrefix + randomText() }

// NewAttemptSecret returns a new secret of a started sign-in.
func NewAttemptSecret() string { return attemptPrefix + randomText() }

// InvitationURL returns the link of an invitation at the console.
func InvitationURL(console *url.URL, token string) string {
	return console.JoinPath("invitations", token).String()
}

func randomText() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // rand.Read never returns an error since Go 1.24
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(bits[:]))
}

// NewCode returns a sign-in code with 60 random bits, as three groups of four characters.
func NewCode() string {
	text := strings.ToUpper(randomText())
	return text[0:4] + "-" + text[4:8] + "-" + text[8:12]
}

// IsSessionToken reports whether a secret has the form of a session token.
func IsSessionToken(secret string) bool {
	return strings.HasPrefix(secret, sessionPrefix) && len(secret) == len(sessionPrefix)+secretLength
}

// HashSecret returns the SHA-256 of a token, a code or a secret. The secrets are random, so they
// need no key and no salt.
func HashSecret(secret string) secrets.Hash { return sha256.Sum256([]byte(secret)) }

// HashCode returns the hash of a sign-in code as a person typed it: in upper or lower case, with or
// without hyphens and spaces.
func HashCode(code string) secrets.Hash {
	return HashSecret(strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(code)))
}

// InvalidSession is the error for a missing, unknown, expired or revoked session token.
func InvalidSession() error {
	return apierr.New(http.StatusUnauthorized, "invalid_session",
		"The session is missing, unknown, expired or revoked. Sign in again.")
}

// StoredPasskey is a passkey of a person.
type StoredPasskey struct {
	// ID is the id of the WebAuthn credential.
	ID       []byte
	PersonID uuid.UUID
	Name     string
	// Credential is the JSON of the public key, the flags and the signature counter.
	Credential []byte
	CreatedAt  time.Time
	LastUsedAt *time.Time
}
