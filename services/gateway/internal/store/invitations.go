package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/people"
	"ringfence.dev/services/gateway/internal/secrets"
)

// These are the errors of invitations and sign-ins.
var (
	// ErrNoInvitation means that an invitation is unknown, expired, accepted or for another person.
	ErrNoInvitation = errors.New("no such invitation")
	// ErrAlreadyMember means that the person already has a role in the workspace of the invitation.
	ErrAlreadyMember = errors.New("already a member")
	// ErrNoAccess means that a person has no role.
	ErrNoAccess = errors.New("no role")
	// ErrLastPasskey means that the person could not sign in any more without this passkey.
	ErrLastPasskey = errors.New("the last passkey")
)

const (
	invitationColumns = `id, workspace_id, role, person_id, invited_by, created_at, expires_at, accepted_at, accepted_by`
	insertInvitation  = `INSERT INTO invitations (id, hash, workspace_id, role, person_id, invited_by, expires_at)
VALUES (@id, @hash, @workspace, @role, @person, @invited_by, now() + @lifetime::interval)
RETURNING ` + invitationColumns
)

// AddInvitation stores an invitation. hash is the hash of its token. ID, WorkspaceID, Role,
// PersonID and InvitedBy of the invitation must be set.
func (s *Store) AddInvitation(
	ctx context.Context, i people.Invitation, hash secrets.Hash, lifetime time.Duration,
) (people.Invitation, error) {
	made, err := pg.One[people.Invitation](ctx, s.pool, insertInvitation, argsOfInvitation(i, hash, lifetime))
	if err != nil {
		return made, fmt.Errorf("add invitation %s: %w", i.ID, err)
	}
	return made, nil
}

func argsOfInvitation(i people.Invitation, hash secrets.Hash, lifetime time.Duration) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": i.ID, "hash": hash[:], "workspace": i.WorkspaceID, "role": i.Role, "person": i.PersonID,
		"invited_by": i.InvitedBy, "lifetime": lifetime,
	}
}

// InviteByCommand stores an invitation that a command of the gateway creates, and its audit entry.
// The person who accepts the invitation becomes an operator.
func (s *Store) InviteByCommand(ctx context.Context, command string, hash secrets.Hash) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make id: %w", err)
	}
	role := people.Operator
	invitation := people.Invitation{ID: id, Role: &role, InvitedBy: command}
	object := audit.Object{Action: "operator_invitation.create", Type: "operator_invitation", ID: id.String()}
	entry, err := change(object, nil, nil, stateOfInvitation(invitation))
	if err != nil {
		return err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		args := argsOfInvitation(invitation, hash, people.InvitationLifetime)
		if _, err := tx.Exec(ctx, insertInvitation, args); err != nil {
			return err
		}
		return recordCommand(ctx, tx, command, entry)
	})
	if err != nil {
		return fmt.Errorf("add invitation %s: %w", id, err)
	}
	return nil
}

const openInvitation = `SELECT ` + invitationColumns + ` FROM invitations
	WHERE hash = @hash AND accepted_at IS NULL AND expires_at > now()`

// OpenInvitation returns the invitation whose token has this hash. It returns ErrNoInvitation if
// the invitation can no longer be accepted.
func (s *Store) OpenInvitation(ctx context.Context, hash secrets.Hash) (people.Invitation, error) {
	found, err := pg.One[people.Invitation](ctx, s.pool, openInvitation, pgx.NamedArgs{"hash": hash[:]})
	if errors.Is(err, pg.ErrNotFound) {
		err = ErrNoInvitation
	}
	if err != nil {
		return found, fmt.Errorf("read invitation: %w", err)
	}
	return found, nil
}

// scopeOf returns the SQL condition for the invitations to a workspace. If workspaceID is nil, the
// condition selects the invitations of operators and the links for lost passkeys. The condition
// does not use IS NOT DISTINCT FROM, which could not use the index.
func scopeOf(workspaceID *uuid.UUID) string {
	if workspaceID == nil {
		return `workspace_id IS NULL`
	}
	return `workspace_id = @workspace`
}

const (
	invitationByID  = `SELECT ` + invitationColumns + ` FROM invitations WHERE id = @id AND `
	listInvitations = `SELECT ` + invitationColumns + ` FROM invitations WHERE `
	pageOfList      = ` AND (@after = '00000000-0000-0000-0000-000000000000'::uuid OR id < @after)
ORDER BY id DESC LIMIT @rows`
	deleteInvitation = `DELETE FROM invitations WHERE id = @id AND accepted_at IS NULL AND `
)

// Invitations lists the invitations of a workspace, newest first. If workspaceID is nil, it lists
// the invitations of operators and the links for lost passkeys.
func (s *Store) Invitations(
	ctx context.Context, workspaceID *uuid.UUID, request page.Request,
) ([]people.Invitation, error) {
	args := pgx.NamedArgs{"workspace": workspaceID, "after": request.After, "id": request.After, "rows": request.Rows()}
	scope := scopeOf(workspaceID)
	if request.After != uuid.Nil {
		if _, err := pg.One[people.Invitation](ctx, s.pool, invitationByID+scope, args); err != nil {
			return nil, cursorError(err)
		}
	}
	found, err := pg.Many[people.Invitation](ctx, s.pool, listInvitations+scope+pageOfList, args)
	if err != nil {
		return nil, fmt.Errorf("list invitations: %w", err)
	}
	return found, nil
}

// Invitation reads one of the invitations that Invitations lists. It returns pg.ErrNotFound if
// there is no such invitation.
func (s *Store) Invitation(ctx context.Context, workspaceID *uuid.UUID, id uuid.UUID) (people.Invitation, error) {
	found, err := pg.One[people.Invitation](ctx, s.pool, invitationByID+scopeOf(workspaceID),
		pgx.NamedArgs{"workspace": workspaceID, "id": id})
	if err != nil {
		return found, fmt.Errorf("read invitation %s: %w", id, err)
	}
	return found, nil
}

// DeleteInvitation deletes one of the invitations that Invitations lists, if it was not accepted.
// It returns pg.ErrNotFound if there is no such invitation.
func (s *Store) DeleteInvitation(ctx context.Context, workspaceID *uuid.UUID, id uuid.UUID) error {
	args := pgx.NamedArgs{"workspace": workspaceID, "id": id}
	tag, err := s.pool.Exec(ctx, deleteInvitation+scopeOf(workspaceID), args)
	if err == nil && tag.RowsAffected() == 0 {
		err = pg.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete invitation %s: %w", id, err)
	}
	return nil
}

const (
	takeInvitation = `UPDATE invitations SET accepted_at = now(), accepted_by = @person
WHERE hash = @hash AND accepted_at IS NULL AND expires_at > now() AND (person_id IS NULL OR person_id = @person)
RETURNING ` + invitationColumns
	// When a person has used a recovery link, the person's other recovery links are deleted.
	endRecoveries    = `DELETE FROM invitations WHERE person_id = @person AND accepted_at IS NULL`
	insertMembership = `INSERT INTO memberships (person_id, workspace_id, role) VALUES (@person, @workspace, @role)
ON CONFLICT (person_id, workspace_id) DO NOTHING`
)

// accept accepts an invitation and writes the audit entry.
func (s SignIn) accept(ctx context.Context, tx pgx.Tx, person people.Person, hash []byte) error {
	accepted, err := acceptInvitation(ctx, tx, person.ID, hash)
	if err != nil {
		return err
	}
	kind := "invitation"
	if accepted.Role == nil {
		kind = "recovery"
	}
	object := audit.Object{Action: kind + ".accept", Type: kind, ID: accepted.ID.String()}
	entry, err := change(object, accepted.WorkspaceID, nil, stateOfInvitation(accepted))
	if err != nil {
		return err
	}
	return s.record(ctx, tx, person, entry)
}

// acceptInvitation marks an invitation as accepted and gives the person the role of the invitation.
func acceptInvitation(ctx context.Context, tx pgx.Tx, personID uuid.UUID, hash []byte) (people.Invitation, error) {
	found, err := pg.One[people.Invitation](ctx, tx, takeInvitation, pgx.NamedArgs{"hash": hash, "person": personID})
	if errors.Is(err, pg.ErrNotFound) {
		return found, ErrNoInvitation
	}
	if err != nil {
		return found, fmt.Errorf("accept invitation: %w", err)
	}
	if found.Role == nil {
		_, err := tx.Exec(ctx, endRecoveries, pgx.NamedArgs{"person": personID})
		return found, err
	}
	tag, err := tx.Exec(ctx, insertMembership,
		pgx.NamedArgs{"person": personID, "workspace": found.WorkspaceID, "role": *found.Role})
	if err != nil {
		return found, fmt.Errorf("insert membership of %s: %w", personID, err)
	}
	if tag.RowsAffected() == 0 {
		return found, ErrAlreadyMember
	}
	return found, markForReplacement(ctx, tx, personID)
}

// AcceptInvitation gives an existing person the role of an invitation. It returns ErrNoInvitation
// or ErrAlreadyMember.
func (s *Store) AcceptInvitation(
	ctx context.Context, personID uuid.UUID, hash secrets.Hash,
) (people.Invitation, error) {
	var found people.Invitation
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, lockSessions, pgx.NamedArgs{"person": personID}); err != nil {
			return fmt.Errorf("lock person %s: %w", personID, err)
		}
		found, err = acceptInvitation(ctx, tx, personID, hash[:])
		if err == nil && found.Role == nil {
			err = ErrNoInvitation // an invitation without a role is only for a new passkey
		}
		return err
	})
	return found, err
}

const (
	savePersonOfProvider = `INSERT INTO people (id, name, email, issuer, subject)
VALUES (@id, @name, @email, @issuer, @subject)
ON CONFLICT (issuer, subject) DO UPDATE SET name = @name, email = @email RETURNING id`
	deleteOldGroupRoles = `DELETE FROM memberships WHERE person_id = @person AND from_groups
	AND NOT coalesce(workspace_id, '00000000-0000-0000-0000-000000000000') = ANY(@workspaces::uuid[])`
	// A role that did not come from a group is not changed.
	saveGroupRole = `INSERT INTO memberships AS known (person_id, workspace_id, role, from_groups)
SELECT @person, @workspace, @role, true
WHERE @workspace::uuid IS NULL OR EXISTS (SELECT FROM workspaces WHERE id = @workspace)
ON CONFLICT (person_id, workspace_id) DO UPDATE SET role = @role WHERE known.from_groups AND known.role <> @role`
	countRoles = `SELECT count(*) FROM memberships WHERE person_id = @person`
)

// ProviderSignIn is a sign-in through an OpenID provider.
type ProviderSignIn struct {
	Person people.Person // Issuer and Subject identify the person
	// GroupRoles replaces the roles that groups gave earlier. It is ignored if HasGroupRoles is
	// false.
	GroupRoles    []people.Membership
	HasGroupRoles bool
	// Invitation is the hash of an invitation to accept, or nil.
	Invitation []byte
}

// SignInWithProvider stores the person, applies the roles of the groups, accepts the invitation and
// creates a session. If the person then has no role, SignInWithProvider stores nothing and returns
// ErrNoAccess.
func (s *Store) SignInWithProvider(ctx context.Context, p ProviderSignIn, signIn SignIn) (people.Session, error) {
	var session people.Session
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		personID, err := pg.Value[uuid.UUID](ctx, tx, savePersonOfProvider, pgx.NamedArgs{
			"id": p.Person.ID, "name": p.Person.Name, "email": p.Person.Email, "issuer": p.Person.Issuer,
			"subject": p.Person.Subject,
		})
		if err != nil {
			return fmt.Errorf("save person: %w", err)
		}
		person := people.Person{ID: personID, Name: p.Person.Name}
		if p.HasGroupRoles {
			if err := applyGroupRoles(ctx, tx, person, p.GroupRoles, signIn); err != nil {
				return err
			}
		}
		if p.Invitation != nil {
			if err := signIn.accept(ctx, tx, person, p.Invitation); err != nil {
				return err
			}
		}
		roles, err := pg.Value[int64](ctx, tx, countRoles, pgx.NamedArgs{"person": personID})
		if err != nil {
			return fmt.Errorf("count roles: %w", err)
		}
		if roles == 0 {
			return ErrNoAccess
		}
		session, err = addSession(ctx, tx, personID, people.ByOIDC, signIn)
		return err
	})
	if err != nil {
		return session, fmt.Errorf("sign in with the OpenID provider: %w", err)
	}
	return session, nil
}

// applyGroupRoles replaces the roles that groups gave, and writes an audit entry for each change.
func applyGroupRoles(
	ctx context.Context, tx pgx.Tx, person people.Person, roles []people.Membership, signIn SignIn,
) error {
	before, err := rolesByWorkspace(ctx, tx, person.ID)
	if err != nil {
		return err
	}
	if err := saveGroupRoles(ctx, tx, person.ID, roles); err != nil {
		return err
	}
	after, err := rolesByWorkspace(ctx, tx, person.ID)
	if err != nil {
		return err
	}
	for workspaceID, role := range before {
		if after[workspaceID] == role || (role != people.Owner && role != people.Operator) {
			continue
		}
		scope := &workspaceID
		if workspaceID == uuid.Nil {
			scope = nil
		}
		if err := endInvitationsBy(ctx, tx, person.ID, scope); err != nil {
			return err
		}
	}
	return signIn.recordRoles(ctx, tx, person, before, after)
}

func saveGroupRoles(ctx context.Context, tx pgx.Tx, personID uuid.UUID, roles []people.Membership) error {
	ids := []uuid.UUID{}
	for _, m := range roles {
		if m.WorkspaceID == nil {
			ids = append(ids, uuid.Nil)
		} else {
			ids = append(ids, *m.WorkspaceID)
		}
	}
	tag, err := tx.Exec(ctx, deleteOldGroupRoles, pgx.NamedArgs{"person": personID, "workspaces": ids})
	if err != nil {
		return fmt.Errorf("delete roles of groups: %w", err)
	}
	changes := tag.RowsAffected()
	for _, m := range roles {
		tag, err := tx.Exec(ctx, saveGroupRole,
			pgx.NamedArgs{"person": personID, "workspace": m.WorkspaceID, "role": m.Role})
		if err != nil {
			return fmt.Errorf("save role of a group: %w", err)
		}
		changes += tag.RowsAffected()
	}
	if changes == 0 {
		return nil
	}
	return markForReplacement(ctx, tx, personID)
}
