package people

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/uuid"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

// providerTimeout limits the duration of one request to the OpenID provider.
const providerTimeout = 10 * time.Second

// OIDCConfig is the configuration of the OpenID provider.
type OIDCConfig struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	RedirectURL  string
	Scopes       []string
	// GroupsClaim is the claim of the ID token that lists the groups of a person.
	GroupsClaim string
	// Roles gives roles to groups. If it is empty, groups give no roles.
	Roles []GroupRole
}

// GroupRole gives a role to the people in a group of the OpenID provider.
type GroupRole struct {
	Group string
	Role  Role
	// WorkspaceID is nil if Role is Operator.
	WorkspaceID *uuid.UUID
}

// ParseGroupRole parses an entry of OIDC_GROUP_ROLES: group=operator or group=role@workspace.
func ParseGroupRole(entry string) (GroupRole, error) {
	fault := fmt.Errorf("OIDC_GROUP_ROLES: %q must be group=operator or group=role@<id of a workspace>", entry)
	split := strings.LastIndex(entry, "=") // the name of a group can contain =
	if split <= 0 {
		return GroupRole{}, fault
	}
	given := GroupRole{Group: entry[:split]}
	role, workspace, scoped := strings.Cut(entry[split+1:], "@")
	given.Role = Role(role)
	if !scoped {
		if given.Role != Operator {
			return GroupRole{}, fault
		}
		return given, nil
	}
	id, err := uuid.Parse(workspace)
	if err != nil || !given.Role.IsWorkspaceRole() {
		return GroupRole{}, fault
	}
	given.WorkspaceID = &id
	return given, nil
}

// OIDC signs people in through an OpenID provider, with the authorization code flow and PKCE. It is
// safe for concurrent use.
type OIDC struct {
	config OIDCConfig
	client *http.Client

	provider atomic.Pointer[oidc.Provider] // nil until the first sign-in
	// discovery reads the configuration of the provider once for all sign-ins that wait for it.
	discovery singleflight.Group
}

// NewOIDC returns an OIDC. It sends no request: the configuration of the provider is read at the
// first sign-in.
func NewOIDC(config OIDCConfig) *OIDC {
	return &OIDC{config: config, client: &http.Client{Timeout: providerTimeout}}
}

// OIDCAttempt is the state of a started sign-in.
type OIDCAttempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	// Invitation is the hash of the invitation that the person accepts, or nil.
	Invitation []byte `json:"invitation,omitempty"`
	// FreshAfter is the time at which the sign-in was started, if the provider must ask the person
	// for credentials again. Otherwise it is nil.
	FreshAfter *time.Time `json:"fresh_after,omitempty"`
}

// Identity describes a person with the data of the OpenID provider.
type Identity struct {
	Issuer  string
	Subject string
	Name    string
	Email   *string
	// Roles are the roles that the groups of the person give, one for each workspace.
	Roles []Membership
	// HasGroupRoles is true if the configuration gives roles to groups. The sign-in then replaces the
	// group roles that are stored for the person.
	HasGroupRoles bool
	// AuthenticatedAt is when the person proved the identity to the provider (claim auth_time). It
	// is nil if the provider does not support this claim. It is the zero time if the provider
	// supports the claim but this token does not contain it.
	AuthenticatedAt *time.Time
}

// maxSkew is the maximum difference between the clocks of the gateway and of the provider.
const maxSkew = time.Minute

// ErrRefused means that the OpenID provider or the browser sent an invalid response.
var ErrRefused = errors.New("sign-in refused")

// Start begins a sign-in. It returns the address of the provider that the browser must open. If
// fresh is true, the provider must ask the person for credentials again, even if the browser still
// has a session at the provider.
func (o *OIDC) Start(ctx context.Context, fresh bool) (address string, attempt OIDCAttempt, err error) {
	client, _, err := o.clients(ctx)
	if err != nil {
		return "", attempt, err
	}
	attempt = OIDCAttempt{State: NewAttemptSecret(), Nonce: NewAttemptSecret(),
		Verifier: oauth2.GenerateVerifier()}
	options := []oauth2.AuthCodeOption{oidc.Nonce(attempt.Nonce), oauth2.S256ChallengeOption(attempt.Verifier)}
	if fresh {
		now := time.Now()
		attempt.FreshAfter = &now
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	} else {
		// With max_age, the ID token must contain auth_time.
		options = append(options, oauth2.SetAuthURLParam("max_age", strconv.Itoa(int(MaxAge.Seconds()))))
	}
	address = client.AuthCodeURL(attempt.State, options...)
	return address, attempt, nil
}

// Finish exchanges the code for an ID token and verifies the token. It returns ErrRefused if the
// state, the code or the token is invalid. It also returns ErrRefused if the provider had to ask
// the person for credentials again but did not.
func (o *OIDC) Finish(ctx context.Context, attempt OIDCAttempt, state, code string) (Identity, error) {
	if state == "" || state != attempt.State {
		return Identity{}, fmt.Errorf("%w: the state belongs to another sign-in", ErrRefused)
	}
	client, provider, err := o.clients(ctx)
	if err != nil {
		return Identity{}, err
	}
	ctx = oidc.ClientContext(ctx, o.client)
	token, err := client.Exchange(ctx, code, oauth2.VerifierOption(attempt.Verifier))
	if _, refused := errors.AsType[*oauth2.RetrieveError](err); refused {
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("exchange code: %w", err)
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := provider.VerifierContext(ctx, &oidc.Config{ClientID: o.config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: verify ID token: %w", ErrRefused, err)
	}
	if verified.Nonce != attempt.Nonce {
		return Identity{}, fmt.Errorf("%w: the nonce of the ID token belongs to another sign-in", ErrRefused)
	}
	found, err := o.identityOf(verified)
	if err != nil {
		return found, err
	}
	return found, found.checkTime(provider, attempt)
}

// checkTime sets AuthenticatedAt to nil if the provider never sends the claim auth_time. It returns
// ErrRefused if the sign-in requires new authentication and AuthenticatedAt is too old.
func (i *Identity) checkTime(provider *oidc.Provider, attempt OIDCAttempt) error {
	var metadata struct {
		Claims []string `json:"claims_supported"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return fmt.Errorf("read configuration of the provider: %w", err)
	}
	if i.AuthenticatedAt.IsZero() && !slices.Contains(metadata.Claims, "auth_time") {
		i.AuthenticatedAt = nil
		return nil
	}
	if attempt.FreshAfter != nil && i.AuthenticatedAt.Before(attempt.FreshAfter.Add(-maxSkew)) {
		return fmt.Errorf("%w: the provider did not ask the person again", ErrRefused)
	}
	return nil
}

// clients returns the OAuth 2.0 client and the provider. It reads the provider's configuration at
// the first call.
func (o *OIDC) clients(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	provider := o.provider.Load()
	if provider == nil {
		// The oidc.Provider also uses this context for later requests, so it must not be the context of a
		// sign-in.
		found := o.discovery.DoChan("", func() (any, error) {
			found, err := oidc.NewProvider(oidc.ClientContext(context.Background(), o.client), o.config.Issuer)
			if err != nil {
				return nil, fmt.Errorf("read configuration of %s: %w", o.config.Issuer, err)
			}
			o.provider.Store(found)
			return found, nil
		})
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("wait for the configuration of %s: %w", o.config.Issuer, ctx.Err())
		case result := <-found:
			if result.Err != nil {
				return nil, nil, result.Err
			}
			provider = o.provider.Load()
		}
	}
	return &oauth2.Config{
		ClientID: o.config.ClientID, ClientSecret: o.config.ClientSecret, RedirectURL: o.config.RedirectURL,
		Endpoint: provider.Endpoint(), Scopes: o.config.Scopes,
	}, provider, nil
}

func (o *OIDC) identityOf(token *oidc.IDToken) (Identity, error) {
	var claims struct {
		Name              string `json:"name"`
		PreferredUsername string `json:"preferred_username"`
		Email             string `json:"email"`
		AuthTime          int64  `json:"auth_time"`
	}
	all := map[string]any{}
	if err := errors.Join(token.Claims(&claims), token.Claims(&all)); err != nil {
		return Identity{}, fmt.Errorf("%w: read claims: %w", ErrRefused, err)
	}
	found := Identity{Issuer: token.Issuer, Subject: token.Subject, HasGroupRoles: len(o.config.Roles) > 0}
	found.AuthenticatedAt = new(time.Time)
	if claims.AuthTime > 0 {
		*found.AuthenticatedAt = time.Unix(claims.AuthTime, 0)
	}
	for _, name := range []string{claims.Name, claims.PreferredUsername, claims.Email, token.Subject} {
		if found.Name == "" {
			found.Name = strings.TrimSpace(cutText(name, 200))
		}
	}
	if email := cutText(claims.Email, 320); email != "" {
		found.Email = &email
	}
	found.Roles = rolesOf(o.config.Roles, textsOf(all[o.config.GroupsClaim]))
	return found, nil
}

// cutText returns the first n visible characters of a text.
func cutText(text string, n int) string {
	visible := func(character rune) rune {
		if isInvisible(character) {
			return -1
		}
		return character
	}
	letters := []rune(strings.Map(visible, strings.ToValidUTF8(text, "")))
	return string(letters[:min(n, len(letters))])
}

// textsOf returns the elements of a claim that is one text or a list of texts.
func textsOf(claim any) (texts []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, element := range claim {
			if text, ok := element.(string); ok {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// rolesOf returns the roles that groups give. If groups give several roles in a workspace, rolesOf
// returns the role that permits the most.
func rolesOf(table []GroupRole, groups []string) (roles []Membership) {
	order := append([]Role{Operator}, WorkspaceRoles()...)
	for _, role := range order {
		for _, given := range table {
			if given.Role != role || !slices.Contains(groups, given.Group) {
				continue
			}
			known := slices.ContainsFunc(roles, func(m Membership) bool {
				return m.WorkspaceID == given.WorkspaceID ||
					(m.WorkspaceID != nil && given.WorkspaceID != nil && *m.WorkspaceID == *given.WorkspaceID)
			})
			if !known {
				roles = append(roles, Membership{WorkspaceID: given.WorkspaceID, Role: role, FromGroups: true})
			}
		}
	}
	return roles
}
