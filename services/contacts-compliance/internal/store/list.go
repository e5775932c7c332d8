package store

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contact"
)

// Filter narrows a list of contacts; zero fields do not.
type Filter struct {
	Number  phone.Number
	Name    string
	DND     contact.DND
	Consent contact.Consent
}

// newestFirst ends every list. Pages run on the key, but on its bytes: ordered by id itself, a statement could also be served by
// the primary key, through the rows of every other workspace.
const (
	newestFirst = ` ORDER BY uuid_send(id) DESC LIMIT @rows`
	below       = ` AND uuid_send(id) < uuid_send(@below::uuid)`
	inLanes     = ` AND dnd_status = ANY (@dnds::text[]) AND consent_status = ANY (@consents::text[])`
	// position takes % and _ as the text they are.
	isNamed = ` AND position(@name IN name_folded) > 0`
)

// listContacts reads lane by lane, the newest of each pair of states and then the newest of those, so that the three opted-out
// of a million are found at once.
const listContacts = `
SELECT ` + contactColumns + ` FROM unnest(@dnds::text[], @consents::text[]) AS lane (dnd, consent) CROSS JOIN LATERAL (
    SELECT ` + contactColumns + ` FROM contacts
    WHERE workspace_id = @workspace_id AND dnd_status = dnd AND consent_status = consent` + below + newestFirst + `
) AS c` + newestFirst

const (
	listNumber      = contactByNumber + inLanes + below + newestFirst
	listNumberNamed = contactByNumber + inLanes + isNamed + below + newestFirst
)

// lately is how many of the newest named contacts are looked at before the index of names is asked. A name that many have fills
// its page among them; of any other there are few enough to sort.
const lately = 2000

const listLatelyNamed = `
SELECT ` + contactColumns + ` FROM (
    SELECT ` + contactColumns + `, name_folded FROM contacts
    WHERE workspace_id = @workspace_id AND name_folded IS NOT NULL` + below + ` ORDER BY uuid_send(id) DESC LIMIT @lately
) AS recent WHERE workspace_id = @workspace_id` + inLanes + isNamed + newestFirst

// name_grams (migration 0002) salts each piece of a name with workspace and states: nobody else's names are met on the way. The beginning
// of a long text finds few enough.
const listNamed = `
WITH hit AS MATERIALIZED (
    SELECT ` + contactColumns + `, name_folded FROM unnest(@dnds::text[], @consents::text[]) AS lane (dnd, consent) JOIN contacts ON
        name_grams(workspace_id, dnd_status, consent_status, name_folded) @> name_grams(@workspace_id::uuid, dnd, consent, left(@name::text, 32))
    WHERE name_folded IS NOT NULL
)
SELECT ` + contactColumns + ` FROM hit WHERE workspace_id = @workspace_id` + inLanes + isNamed + below + newestFirst

const contactCursor = `
SELECT EXISTS (SELECT 1 FROM contacts WHERE workspace_id = @workspace_id AND id = @after)`

// List reads one page of contacts, newest first; an unknown cursor is page.UnknownCursor.
func (s *Store) List(ctx context.Context, workspace uuid.UUID, f Filter, p page.Request) ([]contact.Contact, error) {
	args := pgx.NamedArgs{
		"workspace_id": workspace, "after": p.After, "below": p.Below(), "rows": p.Rows(), "lately": lately,
		"phone_e164": f.Number, "name": contact.Fold(f.Name),
	}
	args["dnds"], args["consents"] = contact.Lanes(f.DND, f.Consent)
	if err := s.knowCursor(ctx, contactCursor, p, args); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(f.Name) > contact.MaxName {
		return nil, nil
	}
	var found []contact.Contact
	var err error
	for _, sql := range f.statements() {
		if found, err = many[contact.Contact](ctx, s.pool, sql, args); err != nil {
			return nil, fmt.Errorf("list contacts: %w", err)
		}
		if len(found) == p.Rows() {
			break
		}
	}
	return found, nil
}

// statements are tried in turn until one fills the page; the last one's answer stands as it is.
func (f Filter) statements() []string {
	switch {
	case f.Number != "" && f.Name != "":
		return []string{listNumberNamed}
	case f.Number != "":
		return []string{listNumber}
	case f.Name != "":
		return []string{listLatelyNamed, listNamed}
	default:
		return []string{listContacts}
	}
}
