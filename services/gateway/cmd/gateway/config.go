package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence.dev/libs/app"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/store"
)

type Config struct {
	app.Config
	AdminAddr string `env:"ADMIN_ADDR" envDefault:"127.0.0.1:8081" help:"Address host:port of the operator API (/admin/v1). It must not be reachable from the internet."`

	TLSCertFile string `env:"TLS_CERT_FILE" help:"PEM file of the certificate and its intermediate certificates, for HTTPS on every address except PRIVATE_ADDR. It is read again when it changes. If empty, these addresses serve HTTP."`
	TLSKeyFile  string `env:"TLS_KEY_FILE" help:"PEM file of the private key of TLS_CERT_FILE."`
	Console     ConsoleConfig

	CallsURL    string `env:"CALLS_URL,required" help:"Base URL of the calls service, without a path."`
	ContactsURL string `env:"CONTACTS_URL,required" help:"Base URL of contacts-compliance, without a path."`
	DialerURL   string `env:"DIALER_URL,required" help:"Base URL of the dialer, without a path."`
	WalletURL   string `env:"WALLET_URL,required" help:"Base URL of billing-wallet, without a path."`
	WebhooksURL string `env:"WEBHOOKS_URL,required" help:"Base URL of webhook-dispatcher, without a path."`

	APIKeyPepper   string   `env:"API_KEY_PEPPER,required" help:"Secret of at least 16 bytes with which API keys and operator tokens are hashed. If it changes, all of them become invalid."`
	OperatorTokens []string `env:"OPERATOR_TOKENS" envSeparator:"," help:"Operators and their tokens, as name=token,name=token. The gateway revokes the tokens of all other operators at its start. If empty, no operator is changed."`
	TrustedProxies []string `env:"TRUSTED_PROXIES" envSeparator:"," help:"Addresses or networks (CIDR) of proxies whose X-Forwarded-For header is trusted. If empty, all clients behind one proxy share the proxy's address and its rate limit."`
	ReadyURLs      []string `env:"READY_URLS" envSeparator:"," help:"URLs of the private /readyz of each service, as name=url,name=url. The public GET /readyz checks them. Several URLs with one name are replicas of one service."`
}

func (c Config) owners() map[string]string {
	return map[string]string{proxy.Calls: c.CallsURL, proxy.Contacts: c.ContactsURL, proxy.Dialer: c.DialerURL,
		proxy.Wallet: c.WalletURL, proxy.Webhooks: c.WebhooksURL}
}

// minToken is the minimum length of an operator token in bytes. Shorter tokens could be guessed.
const minToken = 16

func (c Config) operators(pepper secrets.Pepper) ([]store.Operator, error) {
	var operators []store.Operator
	var errs []error
	for i, entry := range c.OperatorTokens {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, token, _ := strings.Cut(entry, "=")
		if name == "" || len(token) < minToken {
			errs = append(errs, fmt.Errorf("OPERATOR_TOKENS: entry %d must be name=token with a token of %d characters or more", i+1, minToken))
			continue
		}
		if strings.HasPrefix(name, people.ActorPrefix) {
			errs = append(errs, fmt.Errorf("OPERATOR_TOKENS: the name %s must not begin with %s", name, people.ActorPrefix))
			continue
		}
		if slices.ContainsFunc(operators, func(o store.Operator) bool { return o.Name == name }) {
			errs = append(errs, fmt.Errorf("OPERATOR_TOKENS: %s is listed twice, "+
				"and only one token would be accepted: give the second its own name", name))
			continue
		}
		hash := pepper.Hash(token)
		operators = append(operators, store.Operator{Name: name, Hash: hash[:]})
	}
	return operators, errors.Join(errs...)
}
