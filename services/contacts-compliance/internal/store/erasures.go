package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
)

// Erasure is an entry of the register of erasures. It does not contain the number.
type Erasure struct {
	ID          uuid.UUID         `db:"id"`
	Subject     []byte            `db:"subject"`
	KeyID       string            `db:"key_id"`
	Actor       string            `db:"actor"`
	RequestedAt time.Time         `db:"requested_at"`
	DoneAt      *time.Time        `db:"done_at"`
	Services    []ErasureProgress `db:"-"`
}

// ErasureProgress is the progress of one service. Open is the number of steps that are not done.
type ErasureProgress struct {
	ErasureID uuid.UUID  `db:"erasure_id"`
	Service   string     `db:"service"`
	Steps     int64      `db:"steps"`
	Open      int64      `db:"open"`
	DoneAt    *time.Time `db:"done_at"`
}

const eraseContact = `
UPDATE contacts
SET name = NULL, name_folded = NULL, email = NULL, external_id = NULL, variables = '{}',
    variables_revision = variables_revision + 1,
    metadata = '{}', time_zone = NULL, erasures = @erasures
WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164`

// erasePreChecks finds the pre-checks through the decisions of the number, because the pre-checks
// have no index on the number.
const erasePreChecks = `
UPDATE pre_checks p SET variables = '{}'
FROM contacts c
JOIN decisions d ON d.workspace_id = c.workspace_id AND d.phone_e164 = c.phone_e164
    AND d.judged_at > now() - interval '32 days'
WHERE p.workspace_id = c.workspace_id AND p.call_request_id = d.call_request_id AND p.phone_e164 = c.phone_e164
  AND p.erasures < c.erasures AND c.erasures > 0`

const oneContact = ` AND c.id = @contact_id`

const insertErasure = `
INSERT INTO erasures (id, workspace_id, key_id, subject, actor, contact_id, erasures, requested_at, published_at)
VALUES (@id, @workspace_id, @key_id, @subject, @actor, @contact_id, @erasures, @requested_at, now())`

// firstSteps inserts one step for each service that erases data. The reports of the services can
// name further steps.
const firstSteps = `
INSERT INTO erasure_steps (erasure_id, service, ref, done_at)
VALUES (@id, 'contacts-compliance', '', @requested_at), (@id, 'calls', '', NULL), (@id, 'dialer', '', NULL)`

// Erase deletes the personal data of a contact, withdraws its consent, adds an entry to the
// register and publishes the event, in one transaction. It keeps the number, its states and its
// records. A number without a contact can be erased too.
func (s *Store) Erase(ctx context.Context, ch contacts.Change) (erased contacts.Contact, entry Erasure, err error) {
	ch.Kind = contacts.ConsentWithdrawn
	id, err := uuid.NewV7()
	if err != nil {
		return erased, entry, fmt.Errorf("make erasure id: %w", err)
	}
	erased, err = s.recordChange(ctx, ch, CreateUnknown, func(batch *pgx.Batch, c contacts.Contact) error {
		subject := s.keys.Subject(ch.WorkspaceID, string(ch.Number))
		entry = Erasure{ID: id, Subject: subject.Sum, KeyID: subject.KeyID, Actor: ch.Actor, RequestedAt: c.UpdatedAt}
		args := pg.Args{
			"id": id, "workspace_id": ch.WorkspaceID, "phone_e164": ch.Number, "contact_id": c.ID, "erasures": c.Erasures + 1,
			"key_id": subject.KeyID, "subject": subject.Sum, "actor": ch.Actor, "requested_at": c.UpdatedAt,
		}
		batch.Queue(eraseContact, args)
		batch.Queue(erasePreChecks+oneContact, args)
		batch.Queue(insertErasure, args)
		batch.Queue(firstSteps, args)
		return outbox.Queue(ctx, batch, erasedEvent(openErasure{
			ID: id, WorkspaceID: ch.WorkspaceID, ContactID: c.ID, Erasures: c.Erasures + 1, Number: ch.Number,
			Subject: subject.Sum,
		}, c.UpdatedAt))
	})
	// Every erasure starts with the steps of firstSteps, so the progress is not read from the
	// database.
	entry.Services = []ErasureProgress{
		{Service: "calls", Steps: 1, Open: 1}, {Service: "contacts-compliance", Steps: 1, DoneAt: &entry.RequestedAt},
		{Service: "dialer", Steps: 1, Open: 1},
	}
	return erased, entry, err
}

// openErasure is the content of the published event.
type openErasure struct {
	ID          uuid.UUID    `db:"id"`
	WorkspaceID uuid.UUID    `db:"workspace_id"`
	ContactID   uuid.UUID    `db:"contact_id"`
	Erasures    int64        `db:"erasures"`
	Number      phone.Number `db:"phone_e164"`
	Subject     []byte       `db:"subject"`
}

func erasedEvent(e openErasure, at time.Time) outbox.Event {
	return outbox.Event{
		Topic: kafka.Contacts, Key: hex.EncodeToString(e.Subject), WorkspaceID: e.WorkspaceID,
		Message: &eventv1.ContactEvent{
			WorkspaceId: e.WorkspaceID.String(), OccurredAt: timestamppb.New(at),
			Event: &eventv1.ContactEvent_Erased{Erased: &eventv1.Erased{
				ErasureId: e.ID.String(), PhoneE164: string(e.Number), ContactId: e.ContactID.String(), Erasures: e.Erasures,
			}},
		},
	}
}

// Step is a report of one service about one step of an erasure.
type Step struct {
	ErasureID   uuid.UUID
	WorkspaceID uuid.UUID
	Service     string
	Ref         string
	// Done is true if the step is done. If Done is false, the service sends further reports about
	// this step.
	Done bool
	// Services and Refs describe the steps that follow: Services[i] must do the step with Refs[i].
	Services, Refs []string
}

const lockErasure = `SELECT done_at IS NOT NULL FROM erasures WHERE id = @id
	AND workspace_id = @workspace_id FOR UPDATE`

const closeStep = `
INSERT INTO erasure_steps AS s (erasure_id, service, ref, done_at) VALUES (@id, @service, @ref, now())
ON CONFLICT (erasure_id, service, ref) DO UPDATE SET done_at = coalesce(s.done_at, now())`

const openSteps = `
INSERT INTO erasure_steps (erasure_id, service, ref)
SELECT DISTINCT @id::uuid, n.service, n.ref FROM unnest(@services::text[], @refs::text[]) AS n (service, ref)
ON CONFLICT DO NOTHING`

const stepsLeft = `SELECT EXISTS (SELECT FROM erasure_steps WHERE erasure_id = @id AND done_at IS NULL)`

const insertServices = `
INSERT INTO erasure_services (erasure_id, service, steps, done_at)
SELECT @id, v.service, count(s.ref), coalesce(max(s.done_at), now())
FROM (VALUES ('contacts-compliance'), ('calls'), ('dialer'), ('webhook-dispatcher')) AS v (service)
LEFT JOIN erasure_steps s ON s.erasure_id = @id AND s.service = v.service
GROUP BY v.service`

const deleteSteps = `DELETE FROM erasure_steps WHERE erasure_id = @id`

const clearLatePreChecks = erasePreChecks + ` AND c.id = (SELECT e.contact_id FROM erasures e WHERE e.id = @id)`

const finishErasure = `UPDATE erasures SET done_at = now(), contact_id = NULL WHERE id = @id`

// ErrNoErasure is returned if the erasure does not exist. ErrErasureDone is returned if all steps
// of the erasure are done.
var (
	ErrNoErasure   = errors.New("the erasure does not exist")
	ErrErasureDone = errors.New("the erasure is already done")
)

// ApplyStep stores a report. Reports can arrive twice and in any order, so a step can be reported
// as done before it is announced. After the last step, the steps are replaced by a count for each
// service, which does not identify the person.
func (s *Store) ApplyStep(ctx context.Context, tx pgx.Tx, step Step) (finished bool, err error) {
	args := pgx.NamedArgs{
		"id": step.ErasureID, "workspace_id": step.WorkspaceID, "service": step.Service, "ref": step.Ref,
		"services": step.Services, "refs": step.Refs,
	}
	done, err := pg.Value[bool](ctx, tx, lockErasure, args)
	if errors.Is(err, pg.ErrNotFound) {
		return false, ErrNoErasure
	}
	if err != nil {
		return false, fmt.Errorf("lock erasure %s: %w", step.ErasureID, err)
	}
	if done {
		return false, ErrErasureDone
	}
	statements := []string{openSteps}
	if step.Done {
		statements = append(statements, closeStep)
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement, args); err != nil {
			return false, fmt.Errorf("store step of erasure %s: %w", step.ErasureID, err)
		}
	}
	if left, err := pg.Value[bool](ctx, tx, stepsLeft, args); err != nil || left {
		return false, err
	}
	for _, statement := range []string{insertServices, deleteSteps, clearLatePreChecks, finishErasure} {
		if _, err := tx.Exec(ctx, statement, args); err != nil {
			return false, fmt.Errorf("finish erasure %s: %w", step.ErasureID, err)
		}
	}
	return true, nil
}

const claimOverdue = `
UPDATE erasures e SET published_at = now()
FROM contacts c
WHERE e.id = ANY (ARRAY(
    SELECT o.id FROM erasures o WHERE o.done_at IS NULL AND o.published_at < now() - make_interval(secs => @seconds)
    ORDER BY o.published_at LIMIT 100 FOR UPDATE SKIP LOCKED))
  AND c.id = e.contact_id
RETURNING e.id, e.workspace_id, e.contact_id, e.erasures, c.phone_e164, e.subject`

// RepublishErasures publishes again the open erasures whose last publication is older than minAge.
// It returns the number of these erasures.
func (s *Store) RepublishErasures(ctx context.Context, minAge time.Duration) (published int, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		open, err := pg.Many[openErasure](ctx, tx, claimOverdue, pgx.NamedArgs{"seconds": minAge.Seconds()})
		if err != nil {
			return err
		}
		events := make([]outbox.Event, len(open))
		for i, e := range open {
			events[i] = erasedEvent(e, time.Now())
		}
		published = len(open)
		return outbox.Put(ctx, tx, events...)
	})
	if err != nil {
		return 0, fmt.Errorf("republish erasures: %w", err)
	}
	return published, nil
}

const clearErasedPreChecks = erasePreChecks +
	` AND p.variables::text <> '{}' AND c.updated_at > now() - interval '2 days'`

// ClearErasedPreChecks deletes variables that a pre-check stored while the person's data was being
// erased.
func (s *Store) ClearErasedPreChecks(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, clearErasedPreChecks); err != nil {
		return fmt.Errorf("clear pre-checks of erased contacts: %w", err)
	}
	return nil
}

const erasureColumns = `id, subject, key_id, actor, requested_at, done_at`

const listErasures = `
SELECT ` + erasureColumns + ` FROM erasures
WHERE workspace_id = @workspace_id AND (@after::uuid IS NULL OR id < @after)
    AND (@subjects::bytea[] IS NULL OR subject = ANY (@subjects))
ORDER BY id DESC
LIMIT @rows`

const erasureCursor = `
SELECT EXISTS (SELECT 1 FROM erasures WHERE workspace_id = @workspace_id AND id = @after)`

// Erasures returns one page of the register, newest first. If number is empty, it returns all
// entries. Otherwise it returns the entries of the number that were stored under one of the
// configured keys.
func (s *Store) Erasures(ctx context.Context, workspace uuid.UUID, number phone.Number, p page.Request) ([]Erasure,
	error) {
	args := pgx.NamedArgs{"workspace_id": workspace, "after": orNull(p.After), "subjects": nil, "rows": p.Rows()}
	if number != "" {
		args["subjects"] = s.keys.Subjects(workspace, string(number))
	}
	if err := s.checkCursor(ctx, erasureCursor, p, args); err != nil {
		return nil, err
	}
	found, err := manyWithoutPlanCache[Erasure](ctx, s.pool, listErasures, args)
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", err)
	}
	return s.withProgress(ctx, found)
}

const erasureByID = `
SELECT ` + erasureColumns + ` FROM erasures WHERE workspace_id = @workspace_id AND id = @id`

// ErasureByID returns one entry of the register, or pg.ErrNotFound.
func (s *Store) ErasureByID(ctx context.Context, workspace, id uuid.UUID) (Erasure, error) {
	found, err := pg.Many[Erasure](ctx, s.pool, erasureByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
	if err != nil {
		return Erasure{}, fmt.Errorf("read erasure %s: %w", id, err)
	}
	if len(found) == 0 {
		return Erasure{}, pg.ErrNotFound
	}
	found, err = s.withProgress(ctx, found)
	if err != nil {
		return Erasure{}, err
	}
	return found[0], nil
}

func (s *Store) withProgress(ctx context.Context, entries []Erasure) ([]Erasure, error) {
	ids := make([]uuid.UUID, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	all, err := s.progress(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		for _, part := range all {
			if part.ErasureID == entries[i].ID {
				entries[i].Services = append(entries[i].Services, part)
			}
		}
	}
	return entries, nil
}

const progressOf = `
SELECT erasure_id, service, steps, 0::bigint AS open, done_at FROM erasure_services
    WHERE erasure_id = ANY (@ids::uuid[])
UNION ALL
SELECT erasure_id, service, count(*), count(*) FILTER (WHERE done_at IS NULL),
    CASE WHEN bool_and(done_at IS NOT NULL) THEN max(done_at) END
FROM erasure_steps WHERE erasure_id = ANY (@ids::uuid[]) GROUP BY erasure_id, service
ORDER BY service`

func (s *Store) progress(ctx context.Context, ids []uuid.UUID) ([]ErasureProgress, error) {
	all, err := pg.Many[ErasureProgress](ctx, s.pool, progressOf, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("read progress of erasures: %w", err)
	}
	return all, nil
}
