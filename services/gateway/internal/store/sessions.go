package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/secrets"
)

// SignIn describes the session that a sign-in creates.
type SignIn struct {
	Hash secrets.Hash // the hash of the new token
	// Previous is the hash of the token that the client sent with the sign-in. The session of that
	// token ends. Previous is nil if the client sent no token.
	Previous *secrets.Hash
	// AuthenticatedAt is when the person proved the identity to the OpenID provider. If
	// AuthenticatedAt is nil, the person proved the identity at the sign-in.
	AuthenticatedAt *time.Time
	// RequestID and Route identify the request of the sign-in in the audit log.
	RequestID uuid.UUID
	Route     string
}

const sessionColumns = `id, person_id, method, signed_in_at,
	coalesce(authenticated_at, signed_in_at) AS authenticated_at, last_used_at, replace AND replaced_at IS NULL AS replace,
	(SELECT name FROM people WHERE people.id = sessions.person_id) AS person_name,
	EXISTS (SELECT FROM memberships m WHERE m.person_id = sessions.person_id AND m.role = 'operator') AS operator`

const liveSession = ` last_used_at > now() - @idle::interval AND signed_in_at > now() - @age::interval
	AND (replaced_at IS NULL OR replaced_at > now() - @replaced::interval)`

// For a few seconds, a replaced token can still be used, so its session row remains. To end a
// session, these statements delete the whole chain of sessions that replaced each other.
const (
	withReplaced = `WITH RECURSIVE chain AS (SELECT id, replaced_by FROM sessions WHERE `
	deleteChain  = ` UNION SELECT s.id, s.replaced_by FROM sessions s
	JOIN chain c ON s.id = c.replaced_by OR s.replaced_by = c.id)
DELETE FROM sessions WHERE id IN (SELECT id FROM chain)`
	deletePrevious = withReplaced + `hash = @previous` + deleteChain
	insertSession  = `INSERT INTO sessions (id, hash, person_id, method, authenticated_at)
VALUES (@id, @hash, @person, @method, least(@authenticated::timestamptz, now()))
RETURNING ` + sessionColumns
)

// lockSessions locks a person. Without the lock, a statement that ends all sessions of the person
// would not see the session that a concurrent transaction inserts.
const lockSessions = `SELECT 1 FROM people WHERE id = @person FOR NO KEY UPDATE`

// addSession creates a session and its audit entry. The earlier session of the browser ends in the
// same transaction.
func addSession(
	ctx context.Context, tx pgx.Tx, personID uuid.UUID, method people.Method, signIn SignIn,
) (people.Session, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return people.Session{}, fmt.Errorf("make id: %w", err)
	}
	args := pgx.NamedArgs{"id": id, "hash": signIn.Hash[:], "person": personID, "method": method,
		"authenticated": signIn.AuthenticatedAt}
	if _, err := tx.Exec(ctx, lockSessions, args); err != nil {
		return people.Session{}, fmt.Errorf("lock person %s: %w", personID, err)
	}
	if signIn.Previous != nil {
		args["previous"] = signIn.Previous[:]
		if _, err := tx.Exec(ctx, deletePrevious, args); err != nil {
			return people.Session{}, fmt.Errorf("delete previous session: %w", err)
		}
	}
	made, err := pg.One[people.Session](ctx, tx, insertSession, args)
	if err != nil {
		return made, fmt.Errorf("insert session: %w", err)
	}
	object := audit.Object{Action: "session.create", Type: "session", ID: id.String()}
	entry, err := change(object, nil, nil, map[string]any{"method": method})
	if err != nil {
		return made, err
	}
	return made, signIn.record(ctx, tx, people.Person{ID: personID, Name: made.PersonName}, entry)
}

const sessionID = `SELECT id FROM sessions WHERE hash = @hash`

// SessionID returns the id of the session with the token. The session can be expired. SessionID
// returns pg.ErrNotFound if no session has the token.
func (s *Store) SessionID(ctx context.Context, hash secrets.Hash) (uuid.UUID, error) {
	id, err := pg.Value[uuid.UUID](ctx, s.pool, sessionID, pgx.NamedArgs{"hash": hash[:]})
	if err != nil {
		return id, fmt.Errorf("id of a session: %w", err)
	}
	return id, nil
}

const useSession = `UPDATE sessions SET last_used_at = now() WHERE id = @id AND` + liveSession + `
RETURNING ` + sessionColumns

// UseSession records a use of a session and returns the session. It returns pg.ErrNotFound if the
// session is expired or revoked.
func (s *Store) UseSession(ctx context.Context, id uuid.UUID) (people.Session, error) {
	args := lifetimes()
	args["id"] = id
	found, err := pg.One[people.Session](ctx, s.pool, useSession, args)
	if err != nil {
		return found, fmt.Errorf("use session %s: %w", id, err)
	}
	return found, nil
}

const readSession = `SELECT ` + sessionColumns + ` FROM sessions WHERE id = @id AND` + liveSession

// Session reads a session without recording a use. It returns pg.ErrNotFound if the session is
// expired or revoked.
func (s *Store) Session(ctx context.Context, id uuid.UUID) (people.Session, error) {
	args := lifetimes()
	args["id"] = id
	found, err := pg.One[people.Session](ctx, s.pool, readSession, args)
	if err != nil {
		return found, fmt.Errorf("session %s: %w", id, err)
	}
	return found, nil
}

const (
	lockPersonOfSession = `SELECT 1 FROM people WHERE id = (SELECT person_id FROM sessions WHERE id = @id)
FOR NO KEY UPDATE`
	endReplaced = `UPDATE sessions SET replaced_at = now(), replaced_by = @new
WHERE id = @id AND replaced_at IS NULL AND replace`
	// The new session has the same sign-in time as the old session.
	copySession = `INSERT INTO sessions (id, hash, person_id, method, signed_in_at, authenticated_at)
SELECT @new, @hash, person_id, method, signed_in_at, authenticated_at FROM sessions WHERE id = @id
RETURNING ` + sessionColumns
)

// ReplaceToken gives a session a new token. It returns pg.ErrNotFound if another request has
// already replaced the token.
func (s *Store) ReplaceToken(ctx context.Context, id uuid.UUID, hash secrets.Hash) (people.Session, error) {
	next, err := uuid.NewV7()
	if err != nil {
		return people.Session{}, fmt.Errorf("make id: %w", err)
	}
	var made people.Session
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{"id": id, "new": next, "hash": hash[:]}
		if _, err := tx.Exec(ctx, lockPersonOfSession, args); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, endReplaced, args)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return pg.ErrNotFound
		}
		made, err = pg.One[people.Session](ctx, tx, copySession, args)
		return err
	})
	if err != nil {
		return made, fmt.Errorf("replace token of session %s: %w", id, err)
	}
	return made, nil
}

const listSessions = `SELECT ` + sessionColumns + ` FROM sessions
	WHERE person_id = @person AND replaced_at IS NULL AND` + liveSession + ` ORDER BY id DESC LIMIT 100`

// Sessions lists the newest 100 live sessions of a person, newest first.
func (s *Store) Sessions(ctx context.Context, personID uuid.UUID) ([]people.Session, error) {
	args := lifetimes()
	args["person"] = personID
	found, err := pg.Many[people.Session](ctx, s.pool, listSessions, args)
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", personID, err)
	}
	return found, nil
}

const (
	revokeSession  = withReplaced + `id = @id AND person_id = @person` + deleteChain
	revokeSessions = `DELETE FROM sessions WHERE person_id = @person`
)

// RevokeSession ends one session of a person. It returns pg.ErrNotFound if the person has no such
// session.
func (s *Store) RevokeSession(ctx context.Context, personID, id uuid.UUID) error {
	ended, err := s.revoke(ctx, revokeSession, pgx.NamedArgs{"id": id, "person": personID})
	if err == nil && ended == 0 {
		err = pg.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("revoke session %s: %w", id, err)
	}
	return nil
}

// RevokeSessions ends all sessions of a person.
func (s *Store) RevokeSessions(ctx context.Context, personID uuid.UUID) error {
	if _, err := s.revoke(ctx, revokeSessions, pgx.NamedArgs{"person": personID}); err != nil {
		return fmt.Errorf("revoke sessions of %s: %w", personID, err)
	}
	return nil
}

// revoke runs a statement that ends sessions of a person, and returns their number.
func (s *Store) revoke(ctx context.Context, statement string, args pgx.NamedArgs) (ended int64, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSessions, args); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, statement, args)
		ended = tag.RowsAffected()
		return err
	})
	return ended, err
}
