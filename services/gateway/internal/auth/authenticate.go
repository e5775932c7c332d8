// Package auth authenticates requests: it finds the holder of an API key, the operator of a token,
// or the session of a person. It also counts the request against the rate limit. Package httpapi
// then checks the plan of the workspace and the access of the key.
package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/store"
)

// Authenticator authenticates and counts requests. It is safe for concurrent use.
type Authenticator struct {
	store    *store.Store
	keys     *keyIDs
	sessions *keyIDs
	limiter  *ratelimit.Limiter
	misses   *unknownKeyAddresses
	pepper   secrets.Pepper
	proxies  Proxies
}

// New returns an authenticator that reads keys and operators from the store and counts requests in
// the store.
func New(st *store.Store, pepper secrets.Pepper, proxies Proxies) *Authenticator {
	return &Authenticator{
		store: st,
		keys: newKeyIDs(func(ctx context.Context, hash secrets.Hash) (uuid.UUID, error) {
			holder, err := st.PrincipalOf(ctx, hash)
			return holder.KeyID, err
		}),
		sessions: newKeyIDs(st.SessionID),
		limiter:  ratelimit.NewLimiter(st.CountRequest),
		misses:   newUnknownKeyAddresses(),
		pepper:   pepper,
		proxies:  proxies,
	}
}

// Authenticate finds the holder of the request's API key and counts the request. It returns 401 if
// the key is missing, malformed or unknown, and 429 above the limit
// (docs/reference/api/README.md#requests-without-a-valid-key). The status is also valid if an error
// is returned.
func (d *Authenticator) Authenticate(r *http.Request) (store.Principal, ratelimit.Status, error) {
	ctx := r.Context()
	secret, ok := secrets.Bearer(r.Header)
	if !ok || !secrets.IsAPIKey(secret) {
		return d.rejectKey(d.LimitAnonymous(r))
	}
	hash, address := d.pepper.Hash(secret), addressKey+d.proxies.Client(r)
	suspect := d.misses.has(address) && !d.keys.isKnown(hash)
	counted, refusal := ratelimit.Status{}, error(nil)
	// if the address sent an unknown key within the last minute, this request is counted by its
	// address
	if suspect {
		counted, refusal = d.allow(ctx, address, ratelimit.Anonymous)
	}
	find := d.keys.findID
	if refusal != nil {
		// Keys from an address above its limit are looked up one at a time, so that many invented
		// keys do not delay other customers. A valid key from this address is still accepted.
		find = d.keys.findIDLimited
	}
	keyID, err := find(ctx, hash)
	if err != nil && refusal != nil {
		return store.Principal{}, counted, refusal
	}
	if err == nil {
		holder, status, err := d.allowKey(ctx, hash, keyID)
		if !errors.Is(err, pg.ErrNotFound) {
			return holder, status, err
		}
		d.keys.revoke(hash)
	} else if !errors.Is(err, pg.ErrNotFound) {
		return store.Principal{}, ratelimit.Anonymous.Unknown(), err
	}
	d.misses.add(address)
	if suspect {
		return d.rejectKey(counted, refusal)
	}
	return d.rejectKey(d.allow(ctx, address, ratelimit.Anonymous))
}

// Holder returns the current holder of the request's API key. It does not count the request against
// the rate limit. It returns pg.ErrNotFound if the key is revoked.
func (d *Authenticator) Holder(ctx context.Context, r *http.Request) (store.Principal, error) {
	secret, ok := secrets.Bearer(r.Header)
	if !ok {
		return store.Principal{}, pg.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return d.store.PrincipalOf(ctx, d.pepper.Hash(secret))
}

// allowKey counts a request of an API key and returns the current holder of the key from the
// database, so a change or revocation applies to the next request on every replica. It returns
// pg.ErrNotFound if the key is revoked, and 429 above the limit.
func (d *Authenticator) allowKey(
	ctx context.Context, hash secrets.Hash, keyID uuid.UUID,
) (store.Principal, ratelimit.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	counter := "key " + keyID.String()
	// After a refusal, the request is not counted until Retry-After has passed. The holder is read
	// anyway, because the limit could have been raised or the key revoked.
	if d.limiter.IsRefused(counter) {
		holder, err := d.store.PrincipalOf(ctx, hash)
		if err != nil {
			return holder, ratelimit.Anonymous.Unknown(), err
		}
		if status, refused := d.limiter.Refusal(counter, holder.Policy()); refused {
			return holder, status, status.Refusal()
		}
	}
	started := time.Now()
	holder, status, err := d.store.CountKeyRequest(ctx, keyID)
	if err != nil {
		return holder, status, err
	}
	if !status.Allowed {
		d.limiter.Refuse(counter, holder.Policy(), started.Add(status.RetryAfter))
		return holder, status, status.Refusal()
	}
	return holder, status, nil
}

// rejectKey returns err. If err is nil, rejectKey returns the 401 error for an unknown key.
func (d *Authenticator) rejectKey(status ratelimit.Status, err error) (store.Principal, ratelimit.Status, error) {
	if err == nil {
		err = unknownKey()
	}
	return store.Principal{}, status, err
}

// These are the prefixes of the counter keys for client addresses.
const (
	addressKey    = "address "
	wrongTokenKey = "wrong token " // the prefix of the counters of wrong operator tokens
)

// LimitAnonymous counts a request without an API key by the client's address. It returns 429 above
// the limit. The status is also valid if an error is returned.
func (d *Authenticator) LimitAnonymous(r *http.Request) (ratelimit.Status, error) {
	return d.allow(r.Context(), addressKey+d.proxies.Client(r), ratelimit.Anonymous)
}

func (d *Authenticator) allow(ctx context.Context, key string, policy ratelimit.Policy) (ratelimit.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	status, err := d.limiter.Count(ctx, key, policy)
	if err != nil {
		return status, err
	}
	if !status.Allowed {
		return status, status.Refusal()
	}
	return status, nil
}

// Operator returns the name of the operator whose token is in the request. An unknown token gives
// 401. After 600 unknown tokens in a minute from a client address, even a correct token gives 429,
// so that tokens cannot be guessed quickly.
func (d *Authenticator) Operator(r *http.Request) (string, error) {
	address := wrongTokenKey + d.proxies.Client(r)
	suspect := d.misses.has(address)
	if suspect { // count the request before its token is compared
		if _, err := d.allow(r.Context(), address, ratelimit.Anonymous); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookupTimeout)
	defer cancel()
	operators, err := d.store.Operators(ctx)
	if err != nil {
		return "", fmt.Errorf("read operators: %w", err)
	}
	if name, ok := d.operatorOf(r, operators); ok {
		return name, nil
	}
	d.misses.add(address)
	if !suspect {
		if _, err := d.allow(r.Context(), address, ratelimit.Anonymous); err != nil {
			return "", err
		}
	}
	return "", apierr.New(http.StatusUnauthorized, "invalid_api_key",
		"The operator token is missing or unknown. Send Authorization: Bearer <token> with one of OPERATOR_TOKENS.")
}

// operatorOf compares the token with the hash of every operator's token, in constant time.
func (d *Authenticator) operatorOf(r *http.Request, operators []store.Operator) (name string, ok bool) {
	token, sent := secrets.Bearer(r.Header)
	hash := d.pepper.Hash(token)
	for _, operator := range operators {
		if hash.Equal(operator.Hash) {
			name, ok = operator.Name, sent
		}
	}
	return name, ok
}

func unknownKey() error {
	return apierr.New(http.StatusUnauthorized, "invalid_api_key",
		"The API key is missing, malformed, revoked or unknown. Send Authorization: Bearer <API_KEY> with a key of this workspace.")
}
