package auth

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/secrets"
)

// BackgroundHeader marks a request that was not caused by a person, for example the update of an
// open page. Such a request does not prolong the session, and does not replace its token.
const BackgroundHeader = "Ringfence-Background"

// Session is the session of a request.
type Session struct {
	people.Session
	// NewToken replaces the token that the client sent. It is empty if the client keeps its token.
	NewToken string
}

// Session finds the session of the request's token and counts the request. It returns 401 if the
// token is missing, unknown, expired or revoked, and 429 above the limit of the session. It also
// returns 401 for API keys and operator tokens. The status is also valid if an error is returned.
//
// The session is read from the database for each request, so a revocation applies to the next
// request on every replica.
func (d *Authenticator) Session(r *http.Request) (Session, ratelimit.Status, error) {
	token, ok := secrets.Bearer(r.Header)
	if !ok || !people.IsSessionToken(token) {
		return d.rejectToken(d.LimitAnonymous(r))
	}
	ctx, hash, address := r.Context(), people.HashSecret(token), addressKey+d.proxies.Client(r)
	suspect := d.misses.has(address) && !d.sessions.isKnown(hash)
	counted, refusal := ratelimit.Status{}, error(nil)
	find := d.sessions.findID
	if suspect {
		if counted, refusal = d.allow(ctx, address, ratelimit.Anonymous); refusal != nil {
			find = d.sessions.findIDLimited
		}
	}
	id, err := find(ctx, hash)
	if err != nil && refusal != nil {
		return Session{}, counted, refusal
	}
	if err == nil {
		session, status, err := d.useSession(ctx, id, r.Header.Get(BackgroundHeader) != "")
		if !errors.Is(err, pg.ErrNotFound) {
			return session, status, err
		}
		d.sessions.revoke(hash)
		// the token belonged to a session before, so this request is not counted as an unknown
		// token
		return Session{}, status, people.InvalidSession()
	} else if !errors.Is(err, pg.ErrNotFound) {
		return Session{}, ratelimit.Anonymous.Unknown(), err
	}
	d.misses.add(address)
	if suspect {
		return d.rejectToken(counted, refusal)
	}
	return d.rejectToken(d.allow(ctx, address, ratelimit.Anonymous))
}

// useSession counts a request of a session. Unless it is a background request, it also records the
// use of the session. It returns pg.ErrNotFound if the session has ended, even if the request
// exceeds the limit.
func (d *Authenticator) useSession(
	ctx context.Context, id uuid.UUID, background bool,
) (Session, ratelimit.Status, error) {
	status, refusal := d.allow(ctx, "session "+id.String(), people.SessionLimit)
	if refusal != nil {
		// If the session was revoked, the client must receive the error for a revoked session and
		// not the refusal of the rate limit.
		if _, err := d.store.Session(ctx, id); errors.Is(err, pg.ErrNotFound) {
			return Session{}, status, err
		}
		return Session{}, status, refusal
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if background {
		found, err := d.store.Session(ctx, id)
		return Session{Session: found}, status, err
	}
	found, err := d.store.UseSession(ctx, id)
	if err != nil || !found.Replace {
		return Session{Session: found}, status, err
	}
	token := people.NewSessionToken()
	replaced, err := d.store.ReplaceToken(ctx, id, people.HashSecret(token))
	if errors.Is(err, pg.ErrNotFound) { // a concurrent request has replaced the token
		return Session{Session: found}, status, nil
	}
	return Session{Session: replaced, NewToken: token}, status, err
}

// PreviousToken returns the hash of the session token in a sign-in request. It is nil if the
// request has no session token.
func PreviousToken(r *http.Request) *secrets.Hash {
	token, ok := secrets.Bearer(r.Header)
	if !ok || !people.IsSessionToken(token) {
		return nil
	}
	hash := people.HashSecret(token)
	return &hash
}

func (d *Authenticator) rejectToken(status ratelimit.Status, err error) (Session, ratelimit.Status, error) {
	if err == nil {
		err = people.InvalidSession()
	}
	return Session{}, status, err
}
