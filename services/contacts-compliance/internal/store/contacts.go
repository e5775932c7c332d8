package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

const contactColumns = `id, workspace_id, phone_e164, name, email, external_id, variables, metadata, dnd_status,
	consent_status, updated_at, erasures`

const insertContact = `
INSERT INTO contacts (id, workspace_id, phone_e164, name, name_folded, email, external_id, metadata, time_zone,
    updated_at)
VALUES (@id, @workspace_id, @phone_e164, @name, @name_folded, @email, @external_id, @metadata, @time_zone, @updated_at)
ON CONFLICT (workspace_id, phone_e164) DO NOTHING
RETURNING ` + contactColumns

const contactByNumber = `
SELECT ` + contactColumns + `
FROM contacts
WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164`

// Create inserts a contact. If the workspace has a contact with the number, it returns that contact
// and existed is true.
func (s *Store) Create(ctx context.Context, c contacts.Contact) (stored contacts.Contact, existed bool, err error) {
	return createContact(ctx, s.pool, c)
}

// CreateWithConsent does what Create does, and records the change of the consent of a new contact
// in the same transaction. It does not change an existing contact.
func (s *Store) CreateWithConsent(ctx context.Context, c contacts.Contact,
	consent contacts.Change) (stored contacts.Contact, existed bool, err error) {
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		if stored, existed, err = createContact(ctx, tx, c); err != nil || existed {
			return err
		}
		stored, err = s.recordIn(ctx, tx, consent, RefuseUnknown, nil)
		return err
	})
	return stored, existed, err
}

func createContact(ctx context.Context, q querier, c contacts.Contact) (stored contacts.Contact, existed bool,
	err error) {
	args, err := contactArgs(c)
	if err != nil {
		return stored, false, err
	}
	args["updated_at"] = c.CreatedAt()
	stored, err = pg.One[contacts.Contact](ctx, q, insertContact, args)
	if errors.Is(err, pg.ErrNotFound) {
		stored, err = pg.One[contacts.Contact](ctx, q, contactByNumber, args)
		existed = true
	}
	if err != nil {
		return stored, false, fmt.Errorf("create contact: %w", err)
	}
	return stored, existed, nil
}

func contactArgs(c contacts.Contact) (pgx.NamedArgs, error) {
	zone, err := c.Metadata.TimeZone()
	if err != nil {
		return nil, err
	}
	args := pgx.NamedArgs{
		"id": c.ID, "workspace_id": c.WorkspaceID, "phone_e164": c.Number, "name": c.Name,
		"email": c.Email, "external_id": c.ExternalID, "name_folded": nil, "metadata": c.Metadata.Encode(), "time_zone": nil,
	}
	if c.Name != nil {
		args["name_folded"] = contacts.Fold(*c.Name)
	}
	if zone != nil {
		args["time_zone"] = zone.String()
	}
	return args, nil
}

// ByNumber returns the contact of a number, or pg.ErrNotFound.
func (s *Store) ByNumber(ctx context.Context, workspace uuid.UUID, number phone.Number) (contacts.Contact, error) {
	return s.find(ctx, contactByNumber, pgx.NamedArgs{"workspace_id": workspace, "phone_e164": number})
}

const contactByID = `
SELECT ` + contactColumns + `
FROM contacts
WHERE workspace_id = @workspace_id AND id = @id`

// ByID returns a contact, or pg.ErrNotFound.
func (s *Store) ByID(ctx context.Context, workspace, id uuid.UUID) (contacts.Contact, error) {
	return s.find(ctx, contactByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
}

func (s *Store) find(ctx context.Context, sql string, args pgx.NamedArgs) (contacts.Contact, error) {
	found, err := pg.One[contacts.Contact](ctx, s.pool, sql, args)
	if err != nil {
		return found, fmt.Errorf("read contact: %w", err)
	}
	return found, nil
}

const updateContact = `
UPDATE contacts
SET name = @name, name_folded = @name_folded, email = @email, external_id = @external_id, metadata = @metadata,
    time_zone = @time_zone, updated_at = now()
WHERE workspace_id = @workspace_id AND id = @id
RETURNING ` + contactColumns

// Update locks a contact, calls edit, and stores the changed name, email, external_id and metadata.
// If consent is not nil, it records that change of the contact's consent in the same transaction.
// An error of edit is returned unchanged and nothing is stored. It returns pg.ErrNotFound if there
// is no such contact.
func (s *Store) Update(ctx context.Context, workspace, id uuid.UUID, consent *contacts.Change,
	edit func(*contacts.Contact) error) (changed contacts.Contact, err error) {
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		c, err := pg.One[contacts.Contact](ctx, tx, contactByID+` FOR UPDATE`,
			pgx.NamedArgs{"workspace_id": workspace, "id": id})
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
		if changed, err = pg.One[contacts.Contact](ctx, tx, updateContact, args); err != nil || consent == nil {
			return err
		}
		change := *consent
		change.Number = c.Number
		changed, err = s.recordIn(ctx, tx, change, RefuseUnknown, nil)
		return err
	})
	return changed, err
}

func (s *Store) checkCursor(ctx context.Context, sql string, p page.Request, args pgx.NamedArgs) error {
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

const optOutNumbers = `
INSERT INTO contacts (id, workspace_id, phone_e164, dnd_status, updated_at)
SELECT id, @workspace_id, phone_e164, 'dnd', now() FROM unnest(@ids::uuid[], @numbers::text[]) AS n (id, phone_e164)
ON CONFLICT (workspace_id, phone_e164) DO UPDATE SET dnd_status = 'dnd', updated_at = now()
    WHERE contacts.dnd_status <> 'dnd'`

// ApplyNumbers opts out the next numbers of an import and stores the progress. FinishImport writes
// the consent record.
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
		if _, err := tx.Exec(ctx, asyncCommit); err != nil {
			return fmt.Errorf("set transaction options: %w", err)
		}
		if _, err := tx.Exec(ctx, optOutNumbers, pg.Args{"workspace_id": i.WorkspaceID, "ids": ids,
			"numbers": numbers}); err != nil {
			return fmt.Errorf("opt out numbers of import %s: %w", i.ID, err)
		}
		return saveImport(ctx, tx, &next)
	})
	if err == nil {
		*i = next
	}
	return err
}

// Filter filters a list of contacts. A zero field matches every contact.
type Filter struct {
	Number  phone.Number
	Name    string
	DND     contacts.DND
	Consent contacts.Consent
	// Email and ExternalID match exactly.
	Email, ExternalID *string
}

// newestFirst does not order by id. Otherwise the planner could use the primary key and read the
// contacts of other workspaces.
const (
	newestFirst = ` ORDER BY uuid_send(id) DESC LIMIT @rows`
	below       = ` AND uuid_send(id) < uuid_send(@below::uuid)`
	inStates    = ` AND dnd_status = ANY (@dnds::text[]) AND consent_status = ANY (@consents::text[])`
	// The SQL function position, unlike LIKE, does not interpret % and _.
	nameContains = ` AND position(@name IN name_folded) > 0`
)

// pairsBegin and pairsEnd read the newest contacts of each pair of DND state and consent state, and
// merge them. So a few opted-out contacts among a million are found without reading all contacts.
//
// A filter by email or external_id adds a condition between pairsBegin and pairsEnd. Each of these
// filters has an index with the columns of contacts_states.
const (
	pairsBegin = `
SELECT ` + contactColumns + ` FROM unnest(@dnds::text[], @consents::text[]) AS pair (dnd, consent) CROSS JOIN LATERAL (
    SELECT ` + contactColumns + ` FROM contacts
    WHERE workspace_id = @workspace_id AND dnd_status = dnd AND consent_status = consent`
	pairsEnd = below + newestFirst + `
) AS c` + newestFirst
	sameEmail      = ` AND email = @email`
	sameExternalID = ` AND external_id = @external_id`
)

// A search by name first reads the recentNamed newest contacts. They fill the page if the name is
// common. Only a search for a rare name uses listNamed.
const recentNamed = 2000

const listRecentNamed = `
SELECT ` + contactColumns + ` FROM (
    SELECT ` + contactColumns + `, name_folded FROM contacts
    WHERE workspace_id = @workspace_id AND name_folded IS NOT NULL` + below + `
    ORDER BY uuid_send(id) DESC LIMIT @recent
) AS recent WHERE workspace_id = @workspace_id` + inStates + nameContains + newestFirst

// The index on name_grams contains hashes of the short pieces of each name, but not their order. So
// listNamed also compares the names.
//
// OFFSET 0 prevents a scan of the whole table.
const listNamed = `
WITH hit AS MATERIALIZED (
    SELECT id FROM (
        SELECT id, workspace_id, dnd_status, consent_status, name_folded
        FROM unnest(@dnds::text[], @consents::text[]) AS pair (dnd, consent) JOIN contacts ON
            name_grams(workspace_id, dnd_status, consent_status, name_folded)
                @> name_grams(@workspace_id::uuid, dnd, consent, left(@name::text, 32))
        WHERE name_folded IS NOT NULL OFFSET 0
    ) AS candidate
    WHERE workspace_id = @workspace_id` + inStates + nameContains + below + newestFirst + `
)
SELECT ` + contactColumns + ` FROM hit JOIN contacts USING (id)` + newestFirst

const contactCursor = `
SELECT EXISTS (SELECT 1 FROM contacts WHERE workspace_id = @workspace_id AND id = @after)`

// List returns one page of contacts, newest first. It returns page.UnknownCursor if the cursor is
// not a contact of the workspace.
func (s *Store) List(ctx context.Context, workspace uuid.UUID, f Filter, p page.Request) ([]contacts.Contact, error) {
	args := pgx.NamedArgs{
		"workspace_id": workspace, "after": p.After, "below": p.Below(), "rows": p.Rows(), "recent": recentNamed,
		"phone_e164": f.Number, "name": contacts.Fold(f.Name), "email": f.Email, "external_id": f.ExternalID,
	}
	args["dnds"], args["consents"] = contacts.StatePairs(f.DND, f.Consent)
	if err := s.checkCursor(ctx, contactCursor, p, args); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(f.Name) > contacts.MaxName {
		return nil, nil
	}
	found, err := pg.Many[contacts.Contact](ctx, s.pool, f.selectContacts(), args)
	if err == nil && f.byNameOnly() && len(found) < p.Rows() {
		found, err = s.searchNames(ctx, workspace, args)
	}
	if err != nil {
		return nil, fmt.Errorf("list contacts: %w", err)
	}
	return found, nil
}

// byNameOnly reports whether the name is the only selective filter.
func (f Filter) byNameOnly() bool {
	return f.Name != "" && f.Number == "" && f.Email == nil && f.ExternalID == nil
}

// selectContacts returns the query for the filter. If byNameOnly is true, the query reads only the
// newest contacts. If these do not fill the page, the caller must call searchNames.
func (f Filter) selectContacts() string {
	var conditions string
	if f.Name != "" {
		conditions += nameContains
	}
	if f.Email != nil {
		conditions += sameEmail
	}
	if f.ExternalID != nil {
		conditions += sameExternalID
	}
	switch {
	case f.Number != "":
		return contactByNumber + inStates + conditions + below + newestFirst
	case f.byNameOnly():
		return listRecentNamed
	default:
		return pairsBegin + conditions + pairsEnd
	}
}

const (
	searchTimeout = "SET LOCAL statement_timeout = '2s'"
	queryCanceled = "57014"
)

// searchNames searches all names of a workspace. The search can be slow if many names contain all
// pieces of the text. So it has a timeout, and each process runs only one search per workspace at a
// time.
func (s *Store) searchNames(ctx context.Context, workspace uuid.UUID, args pgx.NamedArgs) (
	found []contacts.Contact, err error,
) {
	unlock, err := s.searches.lock(ctx, workspace)
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, searchTimeout); err != nil {
			return fmt.Errorf("set search timeout: %w", err)
		}
		found, err = pg.Many[contacts.Contact](ctx, tx, listNamed, args)
		return err
	})
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == queryCanceled {
		busy := apierr.New(http.StatusServiceUnavailable, "unavailable",
			"The search for q took too long and was stopped. Use a longer or rarer part of the name, or try again.")
		busy.RetryAfter = 2 * time.Second
		return nil, busy
	}
	return found, err
}
