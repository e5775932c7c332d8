package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence.dev/libs/app"
	"ringfence.dev/services/gateway/internal/apikeys"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/store"
)

type Config struct {
	app.Config
	AdminAddr string `env:"ADMIN_ADDR" envDefault:"127.0.0.1:8081" help:"address of the operator's side (/admin/v1); keep it private"`

	CallsURL    string `env:"CALLS_URL,required" help:"address of calls"`
	ContactsURL string `env:"CONTACTS_URL,required" help:"address of contacts-compliance"`
	DialerURL   string `env:"DIALER_URL,required" help:"address of dialer"`
	WalletURL   string `env:"WALLET_URL,required" help:"address of billing-wallet"`
	WebhooksURL string `env:"WEBHOOKS_URL,required" help:"address of webhook-dispatcher"`

	APIKeyPepper   string   `env:"API_KEY_PEPPER,required" help:"secret under which keys and tokens are hashed, 16 bytes or more; changing it ends every key"`
	OperatorTokens []string `env:"OPERATOR_TOKENS" envSeparator:"," help:"operators as name=token,name=token; when set, whoever is not listed loses access"`
	TrustedProxies []string `env:"TRUSTED_PROXIES" envSeparator:"," help:"addresses or networks whose X-Forwarded-For is believed"`
	ReadyURLs      []string `env:"READY_URLS" envSeparator:"," help:"private /readyz of the services as name=url,name=url, for GET /readyz"`
}

func (c Config) owners() map[string]string {
	return map[string]string{proxy.Calls: c.CallsURL, proxy.Contacts: c.ContactsURL, proxy.Dialer: c.DialerURL,
		proxy.Wallet: c.WalletURL, proxy.Webhooks: c.WebhooksURL}
}

// minToken is the minimum length of an operator token, so that it cannot be guessed.
const minToken = 16

// operators returns the operators of OPERATOR_TOKENS with the hashes of their tokens.
func (c Config) operators(pepper apikeys.Pepper) ([]store.Operator, error) {
	var operators []store.Operator
	var faults []error
	for i, entry := range c.OperatorTokens {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, token, _ := strings.Cut(entry, "=")
		if name == "" || len(token) < minToken {
			faults = append(faults, fmt.Errorf("OPERATOR_TOKENS: entry %d must be name=token with a token of %d characters or more", i+1, minToken))
			continue
		}
		if slices.ContainsFunc(operators, func(o store.Operator) bool { return o.Name == name }) {
			faults = append(faults, fmt.Errorf("OPERATOR_TOKENS: %s is listed twice, "+
				"and only one token would be accepted: give the second its own name", name))
			continue
		}
		hash := pepper.Hash(token)
		operators = append(operators, store.Operator{Name: name, Hash: hash[:]})
	}
	return operators, errors.Join(faults...)
}
