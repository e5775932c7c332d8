package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contact"
)

const contactColumns = `id, workspace_id, phone_e164, name, email, external_id, variables, metadata, dnd_status, consent_status, updated_at`

// ErrNotFound says that the workspace has no such thing.
var ErrNotFound = errors.New("not found")

const insertContact = `
INSERT INTO contacts (id, workspace_id, phone_e164, name, name_folded, metadata, time_zone, updated_at)
VALUES (@id, @workspace_id, @phone_e164, @name, @name_folded, @metadata, @time_zone, @updated_at)
ON CONFLICT (workspace_id, phone_e164) DO NOTHING
RETURNING ` + contactColumns

const contactByNumber = `
SELECT ` + contactColumns + `
FROM contacts
WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164`

// Create stores a new contact. A number the workspace knows already stores nothing: the contact that is
// there comes back with existed set.
func (s *Store) Create(ctx context.Context, c contact.Contact) (stored contact.Contact, existed bool, err error) {
	args, err := contactArgs(c)
	if err != nil {
		return stored, false, err
	}
	args["updated_at"] = c.CreatedAt()
	stored, err = one[contact.Contact](ctx, s.pool, insertContact, args)
	if errors.Is(err, pgx.ErrNoRows) {
		stored, err = one[contact.Contact](ctx, s.pool, contactByNumber, args)
		existed = true
	}
	if err != nil {
		return stored, false, fmt.Errorf("create contact: %w", err)
	}
	return stored, existed, nil
}

func contactArgs(c contact.Contact) (pgx.NamedArgs, error) {
	zone, err := c.Metadata.TimeZone()
	if err != nil {
		return nil, err
	}
	args := pgx.NamedArgs{
		"id": c.ID, "workspace_id": c.WorkspaceID, "phone_e164": c.Number, "name": c.Name,
		"name_folded": nil, "metadata": c.Metadata.Encode(), "time_zone": nil,
	}
	if c.Name != nil {
		args["name_folded"] = contact.Fold(*c.Name)
	}
	if zone != nil {
		args["time_zone"] = zone.String()
	}
	return args, nil
}

// ByNumber finds the contact of a number, or ErrNotFound.
func (s *Store) ByNumber(ctx context.Context, workspace uuid.UUID, number phone.Number) (contact.Contact, error) {
	return s.find(ctx, contactByNumber, pgx.NamedArgs{"workspace_id": workspace, "phone_e164": number})
}

const contactByID = `
SELECT ` + contactColumns + `
FROM contacts
WHERE workspace_id = @workspace_id AND id = @id`

// ByID finds a contact, or ErrNotFound.
func (s *Store) ByID(ctx context.Context, workspace, id uuid.UUID) (contact.Contact, error) {
	return s.find(ctx, contactByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
}

func (s *Store) find(ctx context.Context, sql string, args pgx.NamedArgs) (contact.Contact, error) {
	found, err := one[contact.Contact](ctx, s.pool, sql, args)
	if errors.Is(err, pgx.ErrNoRows) {
		return found, ErrNotFound
	}
	if err != nil {
		return found, fmt.Errorf("read contact: %w", err)
	}
	return found, nil
}

const updateContact = `
UPDATE contacts
SET name = @name, name_folded = @name_folded, metadata = @metadata, time_zone = @time_zone, updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + contactColumns

// Change lets edit alter name and metadata of a contact while nobody else can; an error of edit changes nothing
// and comes back as it is. ErrNotFound when there is no such contact.
func (s *Store) Change(ctx context.Context, workspace, id uuid.UUID, edit func(*contact.Contact) error) (changed contact.Contact, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		c, err := one[contact.Contact](ctx, tx, contactByID+` FOR UPDATE`, pgx.NamedArgs{"workspace_id": workspace, "id": id})
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return fmt.Errorf("lock contact %s: %w", id, err)
		}
		if err := edit(&c); err != nil {
			return err
		}
		args, err := contactArgs(c)
		if err != nil {
			return err
		}
		changed, err = one[contact.Contact](ctx, tx, updateContact, args)
		return err
	})
	return changed, err
}

func (s *Store) knowCursor(ctx context.Context, sql string, p page.Request, args pgx.NamedArgs) error {
	if p.After == uuid.Nil {
		return nil
	}
	var known bool
	if err := s.pool.QueryRow(ctx, sql, args).Scan(&known); err != nil {
		return fmt.Errorf("look up cursor: %w", err)
	}
	if !known {
		return page.UnknownCursor()
	}
	return nil
}

const optOutAll = `
INSERT INTO contacts (id, workspace_id, phone_e164, dnd_status, updated_at)
SELECT id, @workspace_id, phone_e164, 'dnd', now() FROM unnest(@ids::uuid[], @numbers::text[]) AS n (id, phone_e164)
ON CONFLICT (workspace_id, phone_e164) DO UPDATE SET dnd_status = 'dnd', updated_at = now()
    WHERE contacts.dnd_status <> 'dnd'`

// ApplyNumbers opts out the next numbers of an import, in their order, together with how far it is. Their one record comes with the last.
func (s *Store) ApplyNumbers(ctx context.Context, i *Import, numbers []string) error {
	ids := make([]uuid.UUID, len(numbers))
	for n := range ids {
		var err error
		if ids[n], err = uuid.NewV7(); err != nil {
			return fmt.Errorf("make contact id: %w", err)
		}
	}
	next := *i
	next.Applied, next.AppliedTo = i.Applied+int64(len(numbers)), numbers[len(numbers)-1]
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, optOutAll, pg.Args{"workspace_id": i.WorkspaceID, "ids": ids, "numbers": numbers}); err != nil {
			return fmt.Errorf("opt out numbers of import %s: %w", i.ID, err)
		}
		return keep(ctx, tx, &next)
	})
	if err == nil {
		*i = next
	}
	return err
}
