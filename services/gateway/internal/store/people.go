package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/secrets"
)

const personColumns = `id, name, email, issuer, subject, created_at`

const personByID = `SELECT ` + personColumns + ` FROM people WHERE id = @id`

// Person reads one person. It returns pg.ErrNotFound if the person does not exist.
func (s *Store) Person(ctx context.Context, id uuid.UUID) (people.Person, error) {
	found, err := pg.One[people.Person](ctx, s.pool, personByID, pgx.NamedArgs{"id": id})
	if err != nil {
		return found, fmt.Errorf("person %s: %w", id, err)
	}
	return found, nil
}

const listPeople = `SELECT ` + personColumns + ` FROM people
	WHERE (@after = '00000000-0000-0000-0000-000000000000'::uuid OR id < @after)
	ORDER BY id DESC LIMIT @rows`

// People lists the people of all workspaces, newest first.
func (s *Store) People(ctx context.Context, request page.Request) ([]people.Person, error) {
	if request.After != uuid.Nil {
		if _, err := s.Person(ctx, request.After); err != nil {
			return nil, cursorError(err)
		}
	}
	found, err := pg.Many[people.Person](ctx, s.pool, listPeople,
		pgx.NamedArgs{"after": request.After, "rows": request.Rows()})
	if err != nil {
		return nil, fmt.Errorf("list people: %w", err)
	}
	return found, nil
}

const listMemberships = `SELECT m.workspace_id, w.name AS workspace_name, m.role, m.from_groups
	FROM memberships m LEFT JOIN workspaces w ON w.id = m.workspace_id
	WHERE m.person_id = @person ORDER BY m.workspace_id NULLS FIRST`

// Memberships lists the roles of a person.
func (s *Store) Memberships(ctx context.Context, personID uuid.UUID) ([]people.Membership, error) {
	found, err := pg.Many[people.Membership](ctx, s.pool, listMemberships, pgx.NamedArgs{"person": personID})
	if err != nil {
		return nil, fmt.Errorf("list memberships of %s: %w", personID, err)
	}
	return found, nil
}

const memberColumns = `p.id, p.name, p.email, p.issuer, p.subject, p.created_at, m.role, m.from_groups
	FROM memberships m JOIN people p ON p.id = m.person_id`

const memberByID = `SELECT ` + memberColumns + ` WHERE m.workspace_id = @workspace AND m.person_id = @person`

// Member reads one member of a workspace. It returns pg.ErrNotFound if the person is not a member.
func (s *Store) Member(ctx context.Context, workspaceID, personID uuid.UUID) (people.Member, error) {
	found, err := pg.One[people.Member](ctx, s.pool, memberByID,
		pgx.NamedArgs{"workspace": workspaceID, "person": personID})
	if err != nil {
		return found, fmt.Errorf("member %s of workspace %s: %w", personID, workspaceID, err)
	}
	return found, nil
}

const listMembers = `SELECT ` + memberColumns + ` WHERE m.workspace_id = @workspace
	AND (@after = '00000000-0000-0000-0000-000000000000'::uuid OR p.id < @after)
	ORDER BY p.id DESC LIMIT @rows`

// Members lists the members of a workspace, newest first.
func (s *Store) Members(
	ctx context.Context, workspaceID uuid.UUID, request page.Request,
) ([]people.Member, error) {
	if request.After != uuid.Nil {
		if _, err := s.Member(ctx, workspaceID, request.After); err != nil {
			return nil, cursorError(err)
		}
	}
	found, err := pg.Many[people.Member](ctx, s.pool, listMembers,
		pgx.NamedArgs{"workspace": workspaceID, "after": request.After, "rows": request.Rows()})
	if err != nil {
		return nil, fmt.Errorf("list members of workspace %s: %w", workspaceID, err)
	}
	return found, nil
}

const grantOf = `SELECT m.role, w.status FROM workspaces w
	JOIN memberships m ON m.person_id = @person AND (m.workspace_id = w.id OR m.role = 'operator')
	WHERE w.id = @workspace ORDER BY m.workspace_id NULLS FIRST LIMIT 1`

// GrantOf returns the role of a person in a workspace, and the status of the workspace. It returns
// pg.ErrNotFound if the workspace does not exist, or if the person is neither a member nor an
// operator.
func (s *Store) GrantOf(ctx context.Context, personID, workspaceID uuid.UUID) (people.Grant, error) {
	found, err := pg.One[people.Grant](ctx, s.pool, grantOf,
		pgx.NamedArgs{"person": personID, "workspace": workspaceID})
	if err != nil {
		return found, fmt.Errorf("role of %s in workspace %s: %w", personID, workspaceID, err)
	}
	return found, nil
}

const insertPerson = `INSERT INTO people (id, name, email, issuer, subject)
VALUES (@id, @name, @email, @issuer, @subject)`

func addPerson(ctx context.Context, tx pgx.Tx, p people.Person) error {
	_, err := tx.Exec(ctx, insertPerson, pgx.NamedArgs{
		"id": p.ID, "name": p.Name, "email": p.Email, "issuer": p.Issuer, "subject": p.Subject,
	})
	if err != nil {
		return fmt.Errorf("insert person %s: %w", p.ID, err)
	}
	return nil
}

// When a person has set the role, later sign-ins through the provider do not change it. So
// from_groups becomes false.
const saveMembership = `INSERT INTO memberships AS known (person_id, workspace_id, role)
VALUES (@person, @workspace, @role)
ON CONFLICT (person_id, workspace_id) DO UPDATE SET role = @role, from_groups = false
WHERE known.role <> @role OR known.from_groups`

const replaceTokens = `UPDATE sessions SET replace = true WHERE person_id = @person AND replaced_at IS NULL`

// setRole gives a person a role. If the role changed, the tokens of the person's sessions are
// replaced.
func setRole(ctx context.Context, tx pgx.Tx, personID uuid.UUID, workspaceID *uuid.UUID, role people.Role) error {
	tag, err := tx.Exec(ctx, saveMembership,
		pgx.NamedArgs{"person": personID, "workspace": workspaceID, "role": role})
	if err != nil {
		return fmt.Errorf("set role of %s: %w", personID, err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	return markForReplacement(ctx, tx, personID)
}

// markForReplacement marks all sessions of a person. The next request of each session then replaces
// its token. The caller must have locked the person.
func markForReplacement(ctx context.Context, tx pgx.Tx, personID uuid.UUID) error {
	if _, err := tx.Exec(ctx, replaceTokens, pgx.NamedArgs{"person": personID}); err != nil {
		return fmt.Errorf("mark the sessions of %s: %w", personID, err)
	}
	return nil
}

// ErrLastOwner means that a change would leave a workspace without an owner, or the service without
// an operator.
var ErrLastOwner = errors.New("the last owner or operator")

// Changes of the owners of a workspace lock the workspace, so that they run one after the other.
// Changes of operators lock the table memberships.
const (
	lockMembers   = `SELECT 1 FROM workspaces WHERE id = @workspace FOR UPDATE`
	lockOperators = `LOCK TABLE memberships IN SHARE ROW EXCLUSIVE MODE`
	othersOfRole  = `SELECT count(*) FROM memberships
	WHERE role = @role AND person_id <> @person AND workspace_id IS NOT DISTINCT FROM @workspace`
	roleOf = `SELECT role, from_groups FROM memberships
	WHERE person_id = @person AND workspace_id IS NOT DISTINCT FROM @workspace`
	deleteMembership = `DELETE FROM memberships
	WHERE person_id = @person AND workspace_id IS NOT DISTINCT FROM @workspace`
)

// heldRole is the role of a person in a workspace, or as an operator.
type heldRole struct {
	Role       people.Role `db:"role"`
	FromGroups bool        `db:"from_groups"`
}

// SetRole changes the role of a member, if check accepts the role that the member has. It returns
// pg.ErrNotFound if the person is not a member, ErrLastOwner if the workspace would have no owner,
// or the error of check.
func (s *Store) SetRole(
	ctx context.Context, personID, workspaceID uuid.UUID, role people.Role,
	check func(role people.Role, fromGroups bool) error,
) error {
	return s.changeMember(ctx, personID, &workspaceID, func(tx pgx.Tx, held heldRole) (keeps bool, err error) {
		if err := check(held.Role, held.FromGroups); err != nil {
			return false, err
		}
		old := held.Role
		if role != old && old == people.Owner {
			if err := endInvitationsBy(ctx, tx, personID, &workspaceID); err != nil {
				return false, err
			}
		}
		return role == old, setRole(ctx, tx, personID, &workspaceID, role)
	})
}

const withdrawInvitations = `DELETE FROM invitations WHERE invited_by = @actor AND accepted_at IS NULL
	AND (@workspace::uuid IS NULL OR workspace_id = @workspace)`

// endInvitationsBy withdraws the open invitations that a person created but may no longer create.
// Otherwise the person could accept one of them and get a role again. If workspaceID is nil, the
// person was an operator, so the invitations to all workspaces are withdrawn.
func endInvitationsBy(ctx context.Context, tx pgx.Tx, personID uuid.UUID, workspaceID *uuid.UUID) error {
	args := pgx.NamedArgs{"actor": people.ActorPrefix + personID.String(), "workspace": workspaceID}
	if _, err := tx.Exec(ctx, withdrawInvitations, args); err != nil {
		return fmt.Errorf("withdraw the invitations of %s: %w", personID, err)
	}
	return nil
}

// RemoveMember removes a person from a workspace, or from the operators if workspaceID is nil. Its
// errors are the same as those of SetRole.
func (s *Store) RemoveMember(ctx context.Context, personID uuid.UUID, workspaceID *uuid.UUID) error {
	return s.changeMember(ctx, personID, workspaceID, func(tx pgx.Tx, _ heldRole) (keeps bool, err error) {
		_, err = tx.Exec(ctx, deleteMembership, pgx.NamedArgs{"person": personID, "workspace": workspaceID})
		if err != nil {
			return false, fmt.Errorf("delete membership of %s: %w", personID, err)
		}
		if err := endInvitationsBy(ctx, tx, personID, workspaceID); err != nil {
			return false, err
		}
		return false, markForReplacement(ctx, tx, personID)
	})
}

// changeMember calls change with the person's current role. change returns true if the person keeps
// this role. Concurrent changes of owners, or of operators, run one after the other.
func (s *Store) changeMember(
	ctx context.Context, personID uuid.UUID, workspaceID *uuid.UUID,
	change func(tx pgx.Tx, held heldRole) (keeps bool, err error),
) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		lock := lockMembers
		if workspaceID == nil {
			lock = lockOperators
		}
		args := pgx.NamedArgs{"person": personID, "workspace": workspaceID}
		// the person is locked before the members, as in a sign-in, to prevent deadlocks
		for _, statement := range []string{lockSessions, lock} {
			if _, err := tx.Exec(ctx, statement, args); err != nil {
				return err
			}
		}
		held, err := pg.One[heldRole](ctx, tx, roleOf, args)
		if err != nil {
			return err
		}
		keeps, err := change(tx, held)
		if err != nil || keeps || (held.Role != people.Owner && held.Role != people.Operator) {
			return err
		}
		args["role"] = held.Role
		others, err := pg.Value[int64](ctx, tx, othersOfRole, args)
		if err == nil && others == 0 {
			err = ErrLastOwner
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("change role of %s: %w", personID, err)
	}
	return nil
}

const (
	deleteCodesOf = `DELETE FROM sign_in_codes WHERE person_id = @person OR expires_at < now()`
	insertCode    = `INSERT INTO sign_in_codes (hash, person_id, expires_at)
VALUES (@hash, @person, now() + @lifetime::interval)`
	// The issuer "local" cannot be the issuer of an OpenID provider, which is always a URL.
	localPerson = `INSERT INTO people (id, name, issuer, subject) VALUES (@id, 'Local operator', 'local', 'operator')
ON CONFLICT (issuer, subject) DO UPDATE SET name = people.name RETURNING id`
)

// AddLocalCode stores a sign-in code of the operator of the local stack and its audit entry, and
// creates this operator if necessary. Earlier codes become invalid.
func (s *Store) AddLocalCode(ctx context.Context, hash secrets.Hash) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make id: %w", err)
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		personID, err := pg.Value[uuid.UUID](ctx, tx, localPerson, pgx.NamedArgs{"id": id})
		if err != nil {
			return err
		}
		if err := setRole(ctx, tx, personID, nil, people.Operator); err != nil {
			return err
		}
		args := pgx.NamedArgs{"person": personID, "hash": hash[:], "lifetime": people.CodeLifetime}
		if _, err := tx.Exec(ctx, deleteCodesOf, args); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertCode, args); err != nil {
			return err
		}
		object := audit.Object{Action: "sign_in_code.create", Type: "person", ID: personID.String()}
		return recordCommand(ctx, tx, "gateway sign-in-code", audit.Entry{PendingEntry: audit.PendingEntry{Object: object}})
	})
	if err != nil {
		return fmt.Errorf("add sign-in code: %w", err)
	}
	return nil
}

const redeemCode = `DELETE FROM sign_in_codes WHERE hash = @hash AND expires_at > now() RETURNING person_id`

// SignInWithCode deletes a sign-in code and creates a session. It returns pg.ErrNotFound if the
// code is unknown, used or expired.
func (s *Store) SignInWithCode(ctx context.Context, code secrets.Hash, signIn SignIn) (people.Session, error) {
	var session people.Session
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		personID, err := pg.Value[uuid.UUID](ctx, tx, redeemCode, pgx.NamedArgs{"hash": code[:]})
		if err != nil {
			return err
		}
		session, err = addSession(ctx, tx, personID, people.ByCode, signIn)
		return err
	})
	if err != nil {
		return session, fmt.Errorf("sign in with a code: %w", err)
	}
	return session, nil
}

const (
	// maxAttempts limits the started sign-ins that are stored. A client needs no session to start one.
	maxAttempts   = 100_000
	insertAttempt = `INSERT INTO sign_in_attempts (hash, kind, state, expires_at)
SELECT @hash, @kind, @state, now() + @lifetime::interval
WHERE (SELECT count(*) FROM (SELECT FROM sign_in_attempts LIMIT @max) AS stored) < @max`
	deleteExpiredAttempts = `DELETE FROM sign_in_attempts WHERE expires_at <= now()`
)

// ErrTooManyAttempts means that no further sign-in can be started until other started sign-ins end
// or expire.
var ErrTooManyAttempts = errors.New("too many started sign-ins")

// AddAttempt stores the state of a started sign-in. It returns ErrTooManyAttempts if too many are
// stored.
func (s *Store) AddAttempt(ctx context.Context, hash secrets.Hash, kind string, state []byte) error {
	args := pgx.NamedArgs{
		"hash": hash[:], "kind": kind, "state": state, "lifetime": people.AttemptLifetime, "max": maxAttempts,
	}
	for _, statement := range []string{insertAttempt, deleteExpiredAttempts, insertAttempt} {
		tag, err := s.pool.Exec(ctx, statement, args)
		if err != nil {
			return fmt.Errorf("add sign-in attempt: %w", err)
		}
		if statement == insertAttempt && tag.RowsAffected() == 1 {
			return nil
		}
	}
	return ErrTooManyAttempts
}

const takeAttempt = `DELETE FROM sign_in_attempts WHERE hash = @hash AND kind = @kind AND expires_at > now()
RETURNING state`

// TakeAttempt deletes a started sign-in and returns its state. It returns pg.ErrNotFound if the
// sign-in is unknown, finished or expired.
func (s *Store) TakeAttempt(ctx context.Context, hash secrets.Hash, kind string) ([]byte, error) {
	state, err := pg.Value[[]byte](ctx, s.pool, takeAttempt, pgx.NamedArgs{"hash": hash[:], "kind": kind})
	if err != nil {
		return nil, fmt.Errorf("take sign-in attempt: %w", err)
	}
	return state, nil
}

const deleteExpiredSignIns = `WITH sessions_gone AS (
	DELETE FROM sessions WHERE last_used_at <= now() - @idle::interval OR signed_in_at <= now() - @age::interval
		OR replaced_at <= now() - @replaced::interval
), codes AS (DELETE FROM sign_in_codes WHERE expires_at <= now())
DELETE FROM sign_in_attempts WHERE expires_at <= now()`

// DeleteExpiredSignIns deletes the expired sessions, codes and started sign-ins.
func (s *Store) DeleteExpiredSignIns(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, deleteExpiredSignIns, lifetimes()); err != nil {
		return fmt.Errorf("delete expired sessions: %w", err)
	}
	return nil
}

func lifetimes() pgx.NamedArgs {
	return pgx.NamedArgs{"idle": people.IdleTimeout, "age": people.MaxAge,
		"replaced": people.ReplacedTokenLifetime}
}
