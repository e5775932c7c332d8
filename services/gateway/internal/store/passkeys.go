package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/people"
)

const listPasskeys = `SELECT id, person_id, name, credential, created_at, last_used_at FROM passkeys
	WHERE person_id = @person ORDER BY created_at`

// Passkeys lists the passkeys of a person, oldest first.
func (s *Store) Passkeys(ctx context.Context, personID uuid.UUID) ([]people.StoredPasskey, error) {
	found, err := pg.Many[people.StoredPasskey](ctx, s.pool, listPasskeys, pgx.NamedArgs{"person": personID})
	if err != nil {
		return nil, fmt.Errorf("list passkeys of %s: %w", personID, err)
	}
	return found, nil
}

const insertPasskey = `INSERT INTO passkeys (id, person_id, name, credential) VALUES (@id, @person, @name, @credential)`

// execer is a pool or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func addPasskey(ctx context.Context, q execer, key people.StoredPasskey) error {
	_, err := q.Exec(ctx, insertPasskey, pgx.NamedArgs{
		"id": key.ID, "person": key.PersonID, "name": key.Name, "credential": key.Credential,
	})
	if err != nil {
		return fmt.Errorf("insert passkey of %s: %w", key.PersonID, err)
	}
	return nil
}

// AddPasskey adds a passkey to a person who is signed in.
func (s *Store) AddPasskey(ctx context.Context, key people.StoredPasskey) error {
	return addPasskey(ctx, s.pool, key)
}

const deletePasskeysOf = `DELETE FROM passkeys WHERE person_id = @person`

// SignUpWithPasskey accepts an invitation with a new passkey and creates a session. If the
// invitation is for a person whose passkey is lost, the person's other passkeys and sessions are
// deleted. Otherwise a new person is stored.
//
// It returns ErrNoInvitation if the invitation cannot be accepted, and ErrProviderOnly if the
// person has roles from groups.
func (s *Store) SignUpWithPasskey(
	ctx context.Context, person people.Person, key people.StoredPasskey, invitation []byte, signIn SignIn,
) (people.Session, error) {
	var session people.Session
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := addPersonOfInvitation(ctx, tx, person, invitation, signIn); err != nil {
			return err
		}
		if err := addPasskey(ctx, tx, key); err != nil {
			return err
		}
		var err error
		session, err = addSession(ctx, tx, person.ID, people.ByPasskey, signIn)
		return err
	})
	if err != nil {
		return session, fmt.Errorf("sign up with a passkey: %w", err)
	}
	return session, nil
}

const isRecovery = `SELECT person_id IS NOT NULL FROM invitations WHERE hash = @hash FOR UPDATE`

func addPersonOfInvitation(
	ctx context.Context, tx pgx.Tx, person people.Person, invitation []byte, signIn SignIn,
) error {
	recovery, err := pg.Value[bool](ctx, tx, isRecovery, pgx.NamedArgs{"hash": invitation})
	if errors.Is(err, pg.ErrNotFound) {
		return ErrNoInvitation
	}
	if err != nil {
		return fmt.Errorf("lock invitation: %w", err)
	}
	if !recovery {
		if err := addPerson(ctx, tx, person); err != nil {
			return err
		}
	}
	if err := signIn.accept(ctx, tx, person, invitation); err != nil {
		return err
	}
	if !recovery {
		return nil
	}
	grouped, err := pg.Value[bool](ctx, tx, hasGroupRole, pgx.NamedArgs{"person": person.ID})
	if err != nil {
		return fmt.Errorf("read roles of %s: %w", person.ID, err)
	}
	if grouped {
		return ErrProviderOnly
	}
	for _, statement := range []string{lockSessions, deletePasskeysOf, revokeSessions} {
		if _, err := tx.Exec(ctx, statement, pgx.NamedArgs{"person": person.ID}); err != nil {
			return fmt.Errorf("delete passkeys and sessions of %s: %w", person.ID, err)
		}
	}
	return nil
}

// ErrProviderOnly means that a person has a role from groups of the OpenID provider. Only a sign-in
// through the provider checks that the person is still in the group.
var ErrProviderOnly = errors.New("the roles come from the OpenID provider")

const hasGroupRole = `SELECT EXISTS (SELECT FROM memberships WHERE person_id = @person AND from_groups)`

const usePasskey = `UPDATE passkeys SET credential = @credential, last_used_at = now()
WHERE id = @id AND person_id = @person`

// SignInWithPasskey stores the new counter of a passkey and creates a session. It returns
// pg.ErrNotFound if the passkey was deleted, ErrProviderOnly if the person has a role from a group
// of the OpenID provider, and ErrNoAccess if the person has no role.
func (s *Store) SignInWithPasskey(
	ctx context.Context, key people.StoredPasskey, signIn SignIn,
) (people.Session, error) {
	var session people.Session
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{"id": key.ID, "person": key.PersonID, "credential": key.Credential}
		tag, err := tx.Exec(ctx, usePasskey, args)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return pg.ErrNotFound
		}
		grouped, err := pg.Value[bool](ctx, tx, hasGroupRole, args)
		if err != nil {
			return err
		}
		if grouped {
			return ErrProviderOnly
		}
		roles, err := pg.Value[int64](ctx, tx, countRoles, args)
		if err != nil {
			return err
		}
		if roles == 0 {
			return ErrNoAccess
		}
		session, err = addSession(ctx, tx, key.PersonID, people.ByPasskey, signIn)
		return err
	})
	if err != nil {
		return session, fmt.Errorf("sign in with a passkey: %w", err)
	}
	return session, nil
}

const (
	lockPerson      = `SELECT issuer IS NOT NULL FROM people WHERE id = @person FOR UPDATE`
	deletePasskey   = `DELETE FROM passkeys WHERE id = @id AND person_id = @person`
	countOfPasskeys = `SELECT count(*) FROM passkeys WHERE person_id = @person`
)

// DeletePasskey deletes a passkey. It returns pg.ErrNotFound if the person has no such passkey, and
// ErrLastPasskey if the person could not sign in any more without it.
func (s *Store) DeletePasskey(ctx context.Context, personID uuid.UUID, id []byte) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{"id": id, "person": personID}
		hasProvider, err := pg.Value[bool](ctx, tx, lockPerson, args)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, deletePasskey, args)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return pg.ErrNotFound
		}
		left, err := pg.Value[int64](ctx, tx, countOfPasskeys, args)
		if err == nil && left == 0 && !hasProvider {
			err = ErrLastPasskey
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete passkey of %s: %w", personID, err)
	}
	return nil
}
