package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/audit"
	"ringfence.dev/services/gateway/internal/people"
)

// record writes the audit entry of a change that a person makes by signing in. The entry commits
// with the change.
func (s SignIn) record(ctx context.Context, tx pgx.Tx, p people.Person, change audit.Entry) error {
	change.Actor = audit.Actor{Type: audit.User, ID: p.ID.String(), Name: p.Name}
	change.Operator = people.ActorPrefix + p.ID.String()
	change.RequestID, change.Method, change.Route, change.Path = s.RequestID, http.MethodPost, s.Route, s.Route
	return insertDone(ctx, tx, change)
}

// recordCommand writes the audit entry of a change by a command of the gateway. The entry commits
// with the change.
func recordCommand(ctx context.Context, tx pgx.Tx, command string, change audit.Entry) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make id: %w", err)
	}
	change.Actor = audit.Actor{Type: audit.Operator, ID: command, Name: command}
	change.Operator = command
	change.RequestID, change.Method, change.Route, change.Path = id, "COMMAND", command, command
	return insertDone(ctx, tx, change)
}

func insertDone(ctx context.Context, tx pgx.Tx, change audit.Entry) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make id: %w", err)
	}
	status := int32(http.StatusCreated)
	change.ID, change.Status, change.Outcome = id, &status, audit.Done
	return insertEntry(ctx, tx, change)
}

// change returns an audit entry about an object. The caller must set the actor and the request.
func change(object audit.Object, workspaceID *uuid.UUID, before, after any) (audit.Entry, error) {
	entry := audit.Entry{PendingEntry: audit.PendingEntry{Object: object, WorkspaceID: workspaceID}}
	for _, state := range []struct {
		value any
		text  *json.RawMessage
	}{{before, &entry.Before}, {after, &entry.After}} {
		if state.value == nil {
			continue
		}
		text, err := json.Marshal(state.value)
		if err != nil {
			return entry, fmt.Errorf("encode %s: %w", object.Type, err)
		}
		*state.text = text
	}
	return entry, nil
}

// invitationState is the state of an invitation in the audit log.
type invitationState struct {
	ID          uuid.UUID    `json:"id"`
	WorkspaceID *uuid.UUID   `json:"workspace_id"`
	Role        *people.Role `json:"role"`
	PersonID    *uuid.UUID   `json:"person_id"`
	InvitedBy   string       `json:"invited_by"`
	AcceptedBy  *uuid.UUID   `json:"accepted_by"`
}

func stateOfInvitation(i people.Invitation) invitationState {
	return invitationState{ID: i.ID, WorkspaceID: i.WorkspaceID, Role: i.Role, PersonID: i.PersonID,
		InvitedBy: i.InvitedBy, AcceptedBy: i.AcceptedBy}
}

const rolesOfPerson = `SELECT coalesce(workspace_id, '00000000-0000-0000-0000-000000000000') AS workspace_id, role
	FROM memberships WHERE person_id = @person`

// rolesByWorkspace returns the roles of a person, by the ids of the workspaces. The role operator
// has the id uuid.Nil.
func rolesByWorkspace(ctx context.Context, tx pgx.Tx, personID uuid.UUID) (map[uuid.UUID]people.Role, error) {
	rows, err := pg.Many[struct {
		WorkspaceID uuid.UUID
		Role        people.Role
	}](ctx, tx, rolesOfPerson, pgx.NamedArgs{"person": personID})
	if err != nil {
		return nil, fmt.Errorf("list roles of %s: %w", personID, err)
	}
	roles := map[uuid.UUID]people.Role{}
	for _, row := range rows {
		roles[row.WorkspaceID] = row.Role
	}
	return roles, nil
}

// recordRoles writes an audit entry for each role that groups gave, changed or removed.
func (s SignIn) recordRoles(
	ctx context.Context, tx pgx.Tx, p people.Person, before, after map[uuid.UUID]people.Role,
) error {
	state := func(role people.Role) any {
		if role == "" {
			return nil
		}
		return map[string]any{"role": role, "from_groups": true}
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for workspaceID := range all {
		old, current := before[workspaceID], after[workspaceID]
		verb := "update"
		switch {
		case old == current:
			continue
		case old == "":
			verb = "create"
		case current == "":
			verb = "delete"
		}
		kind, scope := "member", &workspaceID
		if workspaceID == uuid.Nil {
			kind, scope = "operator", nil
		}
		object := audit.Object{Action: kind + "." + verb, Type: kind, ID: p.ID.String()}
		entry, err := change(object, scope, state(old), state(current))
		if err != nil {
			return err
		}
		if err := s.record(ctx, tx, p, entry); err != nil {
			return err
		}
	}
	return nil
}
