package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/service"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/store"
)

// ConsoleConfig contains the settings of the console listener and of sign-ins.
type ConsoleConfig struct {
	Addr  string `env:"CONSOLE_ADDR" help:"Address host:port for requests of the console, which need a session token. It must not be reachable from the internet. If empty, the gateway serves no console."`
	URL   string `env:"CONSOLE_URL" help:"URL of the console in the browser. Passkeys, links of invitations and the OpenID provider need it. If empty, people cannot sign in with a passkey or an OpenID provider."`
	Codes bool   `env:"CONSOLE_CODES" help:"true to accept the one-time sign-in codes of the local stack. Set it only on a developer's machine."`

	Issuer       string   `env:"OIDC_ISSUER" help:"Issuer URL of the OpenID provider through which people sign in. If empty, no provider is used."`
	ClientID     string   `env:"OIDC_CLIENT_ID" help:"Client id at the OpenID provider. The redirect address is CONSOLE_URL with the path /sign-in/oidc."`
	ClientSecret string   `env:"OIDC_CLIENT_SECRET" help:"Client secret at the OpenID provider. If empty, the gateway is a public client, which uses PKCE only."`
	Scopes       []string `env:"OIDC_SCOPES" envSeparator:"," envDefault:"openid,profile,email" help:"Scopes that the gateway requests from the OpenID provider."`
	GroupsClaim  string   `env:"OIDC_GROUPS_CLAIM" envDefault:"groups" help:"Claim of the ID token that lists the groups of a person."`
	GroupRoles   []string `env:"OIDC_GROUP_ROLES" envSeparator:";" help:"Roles that the members of a group get at each sign-in, as group=operator;group=role@workspace-id. If empty, people get roles by invitations only."`
}

// consoleSignIn contains the parsed settings of sign-ins.
type consoleSignIn struct {
	url      *url.URL
	passkeys *people.Passkeys
	oidc     *people.OIDC
}

func (c ConsoleConfig) parse() (parsed consoleSignIn, err error) {
	var roles []people.GroupRole
	var errs []error
	for _, entry := range c.GroupRoles {
		given, err := people.ParseGroupRole(entry)
		roles, errs = append(roles, given), append(errs, err)
	}
	if c.Issuer != "" && (c.ClientID == "" || c.URL == "") {
		errs = append(errs, errors.New("OIDC_ISSUER needs OIDC_CLIENT_ID and CONSOLE_URL"))
	}
	if c.URL == "" || errors.Join(errs...) != nil {
		return parsed, errors.Join(errs...)
	}
	address, err := url.Parse(c.URL)
	if err != nil || address.Host == "" || (address.Scheme != "https" && address.Scheme != "http") {
		return parsed, fmt.Errorf("CONSOLE_URL must be like https://console.example.com, not %q", c.URL)
	}
	parsed.url = address
	if parsed.passkeys, err = people.NewPasskeys(address); err != nil {
		return parsed, fmt.Errorf("CONSOLE_URL: %w", err)
	}
	if c.Issuer != "" {
		parsed.oidc = people.NewOIDC(people.OIDCConfig{
			Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, Scopes: c.Scopes,
			RedirectURL: address.JoinPath("sign-in", "oidc").String(), GroupsClaim: c.GroupsClaim, Roles: roles,
		})
	}
	return parsed, nil
}

// consoleCommands returns the commands that give the first operator access to the console.
func consoleCommands() []app.Command[Config] {
	return []app.Command[Config]{{
		Command: service.Command[Config]{
			Name: "invite-operator",
			Help: "prints a link with which the first operator signs in to the console; it works once, for 7 days",
		},
		Run: inviteOperator,
	}, {
		Command: service.Command[Config]{
			Name: "sign-in-code",
			Help: "prints a one-time code with which the operator of the local stack signs in; needs CONSOLE_CODES=true",
		},
		Run: printSignInCode,
	}}
}

// inviteOperator prints the link of a new invitation. If CONSOLE_URL is not set, it prints only the
// token.
func inviteOperator(ctx context.Context, cfg Config, pool *pgxpool.Pool) error {
	parsed, err := cfg.Console.parse()
	if err != nil {
		return err
	}
	token := people.NewInvitationToken()
	if err := store.New(pool, nil).InviteByCommand(ctx, "gateway invite-operator", people.HashSecret(token)); err != nil {
		return err
	}
	if parsed.url != nil {
		token = people.InvitationURL(parsed.url, token)
	}
	_, err = fmt.Fprintln(os.Stdout, token)
	return err
}

// printSignInCode prints a new sign-in code for the local stack. Earlier codes become invalid.
func printSignInCode(ctx context.Context, cfg Config, pool *pgxpool.Pool) error {
	if !cfg.Console.Codes {
		return errors.New("CONSOLE_CODES is not true: sign-in codes are only for the local stack")
	}
	code := people.NewCode()
	if err := store.New(pool, nil).AddLocalCode(ctx, people.HashCode(code)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(os.Stdout, code)
	return err
}
