package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence.dev/libs/app"
	"ringfence.dev/services/gateway/internal/apikeys"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/store"
)

type Config struct {
	app.Config
	AdminAddr string `env:"ADMIN_ADDR" envDefault:"127.0.0.1:8081" help:"address of the operator API (/admin/v1); it must not be reachable from the internet"`

	TLSCertFile string `env:"TLS_CERT_FILE" help:"PEM file of the certificate for HTTPS on every address except PRIVATE_ADDR, with its intermediate certificates; loaded again when it changes; empty: HTTP"`
	TLSKeyFile  string `env:"TLS_KEY_FILE" help:"PEM file of the private key of TLS_CERT_FILE"`
	Console     ConsoleConfig

	CallsURL    string `env:"CALLS_URL,required" help:"URL of calls, without a path"`
	ContactsURL string `env:"CONTACTS_URL,required" help:"URL of contacts-compliance, without a path"`
	DialerURL   string `env:"DIALER_URL,required" help:"URL of the dialer, without a path"`
	WalletURL   string `env:"WALLET_URL,required" help:"URL of billing-wallet, without a path"`
	WebhooksURL string `env:"WEBHOOKS_URL,required" help:"URL of webhook-dispatcher, without a path"`

	APIKeyPepper   string   `env:"API_KEY_PEPPER,required" help:"secret of at least 16 bytes with which API keys and operator tokens are hashed; if it changes, all of them become invalid"`
	OperatorTokens []string `env:"OPERATOR_TOKENS" envSeparator:"," help:"operators as name=token,name=token; the tokens of all other operators are revoked; empty: no operator is changed"`
	TrustedProxies []string `env:"TRUSTED_PROXIES" envSeparator:"," help:"addresses or networks of proxies whose X-Forwarded-For header is trusted; empty: none"`
	ReadyURLs      []string `env:"READY_URLS" envSeparator:"," help:"private /readyz of each service as name=url,name=url, for the public GET /readyz; several URLs with one name are replicas of one service"`
}

func (c Config) owners() map[string]string {
	return map[string]string{proxy.Calls: c.CallsURL, proxy.Contacts: c.ContactsURL, proxy.Dialer: c.DialerURL,
		proxy.Wallet: c.WalletURL, proxy.Webhooks: c.WebhooksURL}
}

// minToken is the minimum length of an operator token in bytes. Shorter tokens could be guessed.
const minToken = 16

func (c Config) operators(pepper apikeys.Pepper) ([]store.Operator, error) {
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
