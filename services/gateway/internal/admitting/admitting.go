// Package admitting decides who may come in: it finds whom a key stands for, counts the request, and
// knows the operators. What the plan and the key allow is judged by whoever routes.
package admitting

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/gateway/internal/apikey"
	"ringfence.dev/services/gateway/internal/quota"
	"ringfence.dev/services/gateway/internal/store"
)

// Door lets requests in or refuses them.
type Door struct {
	keys      *remembered[apikey.Hash, store.Holder]
	operators *remembered[struct{}, []store.Operator]
	turns     *turns
	pepper    apikey.Pepper
	proxies   Proxies
}

// NewDoor makes a door over the store.
func NewDoor(st *store.Store, pepper apikey.Pepper, proxies Proxies) *Door {
	return &Door{
		keys:      remember(st.HolderOf),
		operators: remember(func(ctx context.Context, _ struct{}) ([]store.Operator, error) { return st.Operators(ctx) }),
		turns:     &turns{take: st.TakeTurn, now: time.Now, refused: map[string]refusal{}},
		pepper:    pepper,
		proxies:   proxies,
	}
}

// Admit answers 401 and 429 of contract.md §1. The standing is always good for the headers, also beside an error.
func (d *Door) Admit(r *http.Request) (store.Holder, quota.Standing, error) {
	ctx := r.Context()
	holder, err := d.holder(ctx, r.Header)
	if errors.Is(err, store.ErrMissing) {
		standing, err := d.Visit(r)
		if err != nil {
			return store.Holder{}, standing, err
		}
		return store.Holder{}, standing, unknownKey()
	}
	if err != nil {
		return store.Holder{}, quota.Anonymous.Unknown(), err
	}
	standing, err := d.turn(ctx, "key "+holder.KeyID.String(), quota.Policy(holder.Workspace().RatePerMinute()))
	return holder, standing, err
}

// Visit counts a request that needs no key by the client's address; a 429 is its error. The standing is always good for the headers.
func (d *Door) Visit(r *http.Request) (quota.Standing, error) {
	return d.turn(r.Context(), "address "+d.proxies.Client(r), quota.Anonymous)
}

func (d *Door) holder(ctx context.Context, header http.Header) (store.Holder, error) {
	secret, ok := apikey.Bearer(header)
	if !ok || !apikey.WellFormed(secret) {
		return store.Holder{}, store.ErrMissing
	}
	return d.keys.get(ctx, d.pepper.Hash(secret))
}

// turn counts a request; a 429 is its error.
func (d *Door) turn(ctx context.Context, key string, policy quota.Policy) (quota.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	standing, err := d.turns.next(ctx, key, policy)
	if err != nil {
		return standing, err
	}
	if !standing.Allowed {
		return standing, standing.Refusal()
	}
	return standing, nil
}

// Operator is the name of who shows the token of an operator; 401 otherwise, or 429 when too many who did not come from the same address. Operators are not counted.
func (d *Door) Operator(r *http.Request) (string, error) {
	operators, err := d.operators.get(r.Context(), struct{}{})
	if err != nil {
		return "", fmt.Errorf("know the operators: %w", err)
	}
	token, ok := apikey.Bearer(r.Header)
	hash, name := d.pepper.Hash(token), ""
	for _, operator := range operators { // all of them, whoever it is
		if hash.Equal(operator.Hash) {
			name = operator.Name
		}
	}
	if !ok || name == "" {
		if _, err := d.turn(r.Context(), "stranger "+d.proxies.Client(r), quota.Anonymous); err != nil {
			return "", err
		}
		return "", apierr.New(http.StatusUnauthorized, "invalid_api_key",
			"The operator token is missing or unknown. Send Authorization: Bearer <token> with one of OPERATOR_TOKENS.")
	}
	return name, nil
}

// Forget makes what was changed through this replica hold here at once; the others follow within 3 s.
func (d *Door) Forget() { d.keys.forget() }

func unknownKey() error {
	return apierr.New(http.StatusUnauthorized, "invalid_api_key",
		"The API key is missing, malformed, revoked or unknown. Send Authorization: Bearer <API_KEY> with a key of this workspace.")
}
