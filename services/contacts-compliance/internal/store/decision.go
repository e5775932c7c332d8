package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/policy"
)

// Question is whom a decision is about.
type Question struct {
	WorkspaceID   uuid.UUID
	CallRequestID uuid.UUID
	Number        phone.Number
	// NamedContact is the contact the request names; uuid.Nil: none.
	NamedContact uuid.UUID
}

func (q Question) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"workspace_id": q.WorkspaceID, "call_request_id": q.CallRequestID, "phone_e164": q.Number, "named_id": orNull(q.NamedContact),
	}
}

// Known is what is on record about a question at one instant of the database's clock.
type Known struct {
	Now       time.Time        `db:"now"`
	ContactID *uuid.UUID       `db:"contact_id"`
	DND       contacts.DND     `db:"dnd_status"`
	Consent   contacts.Consent `db:"consent_status"`
	TimeZone  *string          `db:"time_zone"`
	// Variables and their revision; the revision is -1 when there is no contact yet.
	Variables contacts.Document `db:"variables"`
	Revision  int64             `db:"variables_revision"`
	// Erasures is how often the person was erased.
	Erasures int64 `db:"erasures"`
	// NamedNumber is the number of the contact that the request names; nil: no such contact.
	NamedNumber   *phone.Number   `db:"named_phone_e164"`
	PolicyVersion int             `db:"policy_version"`
	RawPolicy     json.RawMessage `db:"policy"`
	// Placed* is what this request was answered when it was allowed before; nil: it was not.
	PlacedContact   *uuid.UUID        `db:"placed_contact_id"`
	PlacedVariables contacts.Document `db:"placed_variables"`
	PlacedFor       *time.Time        `db:"placed_for"`
	PlacedErasures  int64             `db:"placed_erasures"`

	Policy policy.Policy `db:"-"`
}

// One row, always; one round trip for everything the gates need. now() is when the transaction began, before its snapshot was taken: whatever was committed
// by that instant is seen. clock_timestamp() is read behind the snapshot, and a decision could bear a later time than a record it never saw.
const known = `
SELECT now() AS now,
       c.id AS contact_id,
       coalesce(c.dnd_status, 'unknown') AS dnd_status,
       coalesce(c.consent_status, 'unknown') AS consent_status,
       c.time_zone,
       c.variables,
       coalesce(c.variables_revision, -1) AS variables_revision,
       coalesce(c.erasures, 0) AS erasures,
       named.phone_e164 AS named_phone_e164,
       coalesce(p.version, 0) AS policy_version,
       p.policy,
       r.contact_id AS placed_contact_id,
       r.variables AS placed_variables,
       r.scheduled_for AS placed_for,
       coalesce(r.erasures, 0) AS placed_erasures
FROM (VALUES (1)) AS always (row)
LEFT JOIN contacts c ON c.workspace_id = @workspace_id AND c.phone_e164 = @phone_e164
LEFT JOIN contacts named ON named.workspace_id = @workspace_id AND named.id = @named_id::uuid
LEFT JOIN LATERAL (
    SELECT version, policy FROM policies WHERE workspace_id = @workspace_id ORDER BY version DESC LIMIT 1
) p ON true
LEFT JOIN pre_checks r ON r.workspace_id = @workspace_id AND r.call_request_id = @call_request_id AND r.phone_e164 = @phone_e164`

// Known reads what is on record.
func (s *Store) Known(ctx context.Context, q Question) (Known, error) {
	k, err := pg.One[Known](ctx, s.pool, known, q.args())
	if err != nil {
		return k, fmt.Errorf("read facts of request %s: %w", q.CallRequestID, err)
	}
	k.Policy, err = decodePolicy(k.RawPolicy)
	return k, err
}

// Decision is one judgement with all it rested on.
type Decision struct {
	Question      Question
	Facts         gate.Facts
	Verdict       gate.Outcome
	PolicyVersion int
	ContactID     *uuid.UUID
	JudgedAt      time.Time
}

func (d Decision) args() (pgx.NamedArgs, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make decision id: %w", err)
	}
	inputs, err := json.Marshal(d.Facts)
	if err != nil {
		return nil, fmt.Errorf("encode facts: %w", err)
	}
	args := d.Question.args()
	args["decision_id"], args["inputs"], args["kind"], args["policy_version"] = id, inputs, d.Facts.Stage, d.PolicyVersion
	args["result"], args["rule"], args["code"], args["message"] = d.Verdict.Result, d.Verdict.Rule, d.Verdict.Code, d.Verdict.Message
	args["call_at"], args["judged_at"], args["contact_id"] = orNull(d.Verdict.At), d.JudgedAt, d.ContactID
	return args, nil
}

const decisionColumns = `id, workspace_id, call_request_id, phone_e164, contact_id, kind, inputs, policy_version, result, rule, code, message, call_at, judged_at`

const insertDecision = `
INSERT INTO decisions (` + decisionColumns + `)
VALUES (@decision_id, @workspace_id, @call_request_id, @phone_e164, @contact_id, @kind, @inputs, @policy_version,
        @result, @rule, @code, @message, @call_at, @judged_at)`

// Keep stores a decision.
func (s *Store) Keep(ctx context.Context, d Decision) error {
	args, err := d.args()
	if err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, insertDecision, pg.Args(args)); err != nil {
		return fmt.Errorf("keep decision on request %s: %w", d.Question.CallRequestID, err)
	}
	return nil
}

// mergeContact creates the contact or writes its variables, but only over the revision they were merged from;
// otherwise it yields no row and nothing of the statement happens.
const mergeContact = `
WITH found AS (
    INSERT INTO contacts (id, workspace_id, phone_e164, variables, updated_at)
    VALUES (@new_contact_id, @workspace_id::uuid, @phone_e164::text, @variables::json, now())
    ON CONFLICT (workspace_id, phone_e164) DO UPDATE
        SET variables = excluded.variables, variables_revision = contacts.variables_revision + 1, updated_at = now()
        WHERE contacts.variables_revision = @revision
    RETURNING id
)`

// takeContact leaves a contact that is there alone: most calls bring no variables, and its row stays free for others. An erasure that commits in the
// same instant may not be seen: what is then kept of the variables goes when the erasure is done, or with ForgetErased.
const takeContact = `
WITH found AS (
    SELECT id FROM contacts WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164 AND erasures = @erasures
)`

// place keeps the answer for a repeat, and the decision with it; of two at once with one id the first wins and
// the other yields no row.
const place = `, placed AS (
    INSERT INTO pre_checks (workspace_id, call_request_id, phone_e164, contact_id, variables, scheduled_for, erasures)
    SELECT @workspace_id::uuid, @call_request_id::uuid, @phone_e164::text, found.id, @variables::json, @call_at::timestamptz, @erasures::bigint FROM found
    ON CONFLICT (workspace_id, call_request_id, phone_e164) DO NOTHING
    RETURNING contact_id
)
INSERT INTO decisions (` + decisionColumns + `)
SELECT @decision_id::uuid, @workspace_id::uuid, @call_request_id::uuid, @phone_e164::text, placed.contact_id, @kind::text, @inputs::json,
       @policy_version::integer, @result::text, @rule::text, @code::text, @message::text, @call_at::timestamptz, @judged_at::timestamptz
FROM placed
RETURNING contact_id`

// Place commits an allowed pre-check in one statement: the contact found or created, the variables merged, the
// answer and the decision kept. ErrMoved says that what the decision rested on has changed since it was read, and
// that nothing was written: read and judge again.
func (s *Store) Place(ctx context.Context, d Decision, known Known, merged contacts.Document, merge Merge) (uuid.UUID, error) {
	args, err := d.args()
	if err != nil {
		return uuid.Nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make contact id: %w", err)
	}
	args["new_contact_id"], args["variables"], args["revision"], args["erasures"] = id, merged.Encode(), known.Revision, known.Erasures
	sql := takeContact + place
	if merge == MergeVariables || d.ContactID == nil {
		sql = mergeContact + place
	}
	found, err := pg.Value[uuid.UUID](ctx, s.pool, sql, args)
	if errors.Is(err, pg.ErrNotFound) {
		return uuid.Nil, ErrMoved
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("place request %s: %w", d.Question.CallRequestID, err)
	}
	return found, nil
}

// ErrMoved says that the facts changed between reading and writing.
var ErrMoved = errors.New("facts changed meanwhile")

// Merge says whether a request brought variables.
type Merge int

// A request without variables does not write to its contact.
const (
	KeepVariables Merge = iota
	MergeVariables
)

// Judged is a decision as it was stored: what it rested on, and what it came to.
type Judged struct {
	ID            uuid.UUID       `db:"id"`
	CallRequestID uuid.UUID       `db:"call_request_id"`
	Number        phone.Number    `db:"phone_e164"`
	ContactID     *uuid.UUID      `db:"contact_id"`
	Kind          gate.Stage      `db:"kind"`
	Inputs        json.RawMessage `db:"inputs"`
	PolicyVersion int             `db:"policy_version"`
	Result        gate.Result     `db:"result"`
	Rule          gate.Rule       `db:"rule"`
	Code          string          `db:"code"`
	Message       string          `db:"message"`
	CallAt        *time.Time      `db:"call_at"`
	JudgedAt      time.Time       `db:"judged_at"`
}

const judgedColumns = `id, call_request_id, phone_e164, contact_id, kind, inputs, policy_version, result, rule, code, message, call_at, judged_at`

const listDecisions = `
SELECT ` + judgedColumns + `
FROM decisions
WHERE workspace_id = @workspace_id
  AND (@after::uuid IS NULL OR id < @after)
  AND (@call_request_id::uuid IS NULL OR call_request_id = @call_request_id)
  AND (@phone_e164::text IS NULL OR phone_e164 = @phone_e164)
ORDER BY id DESC
LIMIT @rows`

const decisionCursor = `
SELECT EXISTS (SELECT 1 FROM decisions WHERE workspace_id = @workspace_id AND id = @after)`

// Decisions reads one page of what was decided, newest first: of a call request, of a number, or of both; zero values do not narrow.
func (s *Store) Decisions(ctx context.Context, workspace, request uuid.UUID, number phone.Number, p page.Request) ([]Judged, error) {
	args := pgx.NamedArgs{
		"workspace_id": workspace, "after": orNull(p.After), "call_request_id": orNull(request), "phone_e164": orNull(number), "rows": p.Rows(),
	}
	if err := s.knowCursor(ctx, decisionCursor, p, args); err != nil {
		return nil, err
	}
	// Planned for the filters at hand: one plan for all of them would serve none by its index.
	found, err := manyPlanned[Judged](ctx, s.pool, listDecisions, args)
	if err != nil {
		return nil, fmt.Errorf("list decisions: %w", err)
	}
	return found, nil
}

const decisionByID = `
SELECT ` + judgedColumns + `
FROM decisions
WHERE workspace_id = @workspace_id AND id = @id`

// DecisionByID reads one decision, or pg.ErrNotFound.
func (s *Store) DecisionByID(ctx context.Context, workspace, id uuid.UUID) (Judged, error) {
	found, err := pg.One[Judged](ctx, s.pool, decisionByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
	if err != nil {
		return found, fmt.Errorf("read decision: %w", err)
	}
	return found, nil
}
