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
)

// Target is the number and the call request that a decision is about.
type Target struct {
	WorkspaceID   uuid.UUID
	CallRequestID uuid.UUID
	Number        phone.Number
	// NamedContact is the contact that the request names, or uuid.Nil.
	NamedContact uuid.UUID
	// Destinations are the number prefixes that the workspace may call. An empty list means that
	// every number is allowed. Destinations is nil if the caller did not send the list.
	Destinations *[]string
}

func (q Target) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"workspace_id": q.WorkspaceID, "call_request_id": q.CallRequestID, "phone_e164": q.Number,
		"named_id": orNull(q.NamedContact),
	}
}

// Inputs is the stored data for a decision, read in one snapshot.
type Inputs struct {
	Now       time.Time        `db:"now"`
	ContactID *uuid.UUID       `db:"contact_id"`
	DND       contacts.DND     `db:"dnd_status"`
	Consent   contacts.Consent `db:"consent_status"`
	TimeZone  *string          `db:"time_zone"`
	// Revision is the revision of Variables. It is -1 if there is no contact.
	Variables contacts.Document `db:"variables"`
	Revision  int64             `db:"variables_revision"`
	// Erasures is the number of times that the person's data was erased.
	Erasures int64 `db:"erasures"`
	// NamedNumber is the number of the contact that the request names. It is nil if there is no
	// such contact.
	NamedNumber   *phone.Number   `db:"named_phone_e164"`
	PolicyVersion int             `db:"policy_version"`
	RawPolicy     json.RawMessage `db:"policy"`
	// The fields whose names begin with Allowed contain the result of an earlier pre-check that
	// allowed this request. AllowedContact is nil if there was no such pre-check.
	AllowedContact   *uuid.UUID        `db:"placed_contact_id"`
	AllowedVariables contacts.Document `db:"placed_variables"`
	AllowedFor       *time.Time        `db:"placed_for"`
	AllowedErasures  int64             `db:"placed_erasures"`

	Policy gate.Policy `db:"-"`
}

// selectInputs always returns one row. now() is the start of the transaction, and the snapshot
// contains every row that was committed before now(). clock_timestamp() is not used, because a
// record could be committed before that time without being in the snapshot.
const selectInputs = `
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
LEFT JOIN pre_checks r ON r.workspace_id = @workspace_id AND r.call_request_id = @call_request_id
    AND r.phone_e164 = @phone_e164`

// ReadInputs reads the inputs of a decision in one round trip.
func (s *Store) ReadInputs(ctx context.Context, q Target) (Inputs, error) {
	k, err := pg.One[Inputs](ctx, s.pool, selectInputs, q.args())
	if err != nil {
		return k, fmt.Errorf("read inputs of request %s: %w", q.CallRequestID, err)
	}
	k.Policy, err = decodePolicy(k.RawPolicy)
	return k, err
}

// Decision is a decision with its inputs.
type Decision struct {
	Target        Target
	Facts         gate.Facts
	Outcome       gate.Outcome
	Gates         []gate.GateReport
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
	gates, err := json.Marshal(d.Gates)
	if err != nil {
		return nil, fmt.Errorf("encode gates: %w", err)
	}
	args := d.Target.args()
	args["gates"] = gates
	args["decision_id"], args["inputs"], args["kind"], args["policy_version"] = id, inputs, d.Facts.Stage, d.PolicyVersion
	args["result"], args["rule"], args["code"], args["message"] = d.Outcome.Result, d.Outcome.Rule, d.Outcome.Code,
		d.Outcome.Message
	args["call_at"], args["judged_at"], args["contact_id"] = orNull(d.Outcome.At), d.JudgedAt, d.ContactID
	return args, nil
}

const decisionColumns = `id, workspace_id, call_request_id, phone_e164, contact_id, kind, inputs, policy_version,
	result, rule, code, message, call_at, judged_at, gates`

const insertDecision = `
INSERT INTO decisions (` + decisionColumns + `)
VALUES (@decision_id, @workspace_id, @call_request_id, @phone_e164, @contact_id, @kind, @inputs, @policy_version,
        @result, @rule, @code, @message, @call_at, @judged_at, @gates)`

// SaveDecision stores a decision without a pre-check result.
func (s *Store) SaveDecision(ctx context.Context, d Decision) error {
	args, err := d.args()
	if err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, insertDecision, pg.Args(args)); err != nil {
		return fmt.Errorf("store decision of request %s: %w", d.Target.CallRequestID, err)
	}
	return nil
}

// upsertContact creates the contact, or stores the merged variables if the contact's variables have
// not changed since they were read. If they have changed, the whole statement changes nothing and
// returns no row.
const upsertContact = `
WITH found AS (
    INSERT INTO contacts (id, workspace_id, phone_e164, variables, updated_at)
    VALUES (@new_contact_id, @workspace_id::uuid, @phone_e164::text, @variables::json, now())
    ON CONFLICT (workspace_id, phone_e164) DO UPDATE
        SET variables = excluded.variables, variables_revision = contacts.variables_revision + 1, updated_at = now()
        WHERE contacts.variables_revision = @revision
    RETURNING id
)`

// findContact does not lock the contact, so it can miss a concurrent erasure. ApplyStep or
// ClearErasedPreChecks then clears the variables of the pre-check.
const findContact = `
WITH found AS (
    SELECT id FROM contacts WHERE workspace_id = @workspace_id AND phone_e164 = @phone_e164 AND erasures = @erasures
)`

// insertPreCheck stores the decision, and the result that a repeated pre-check of the same request
// returns. If another pre-check of the request was stored before, the statement returns no row.
const insertPreCheck = `, placed AS (
    INSERT INTO pre_checks (workspace_id, call_request_id, phone_e164, contact_id, variables, scheduled_for, erasures)
    SELECT @workspace_id::uuid, @call_request_id::uuid, @phone_e164::text, found.id, @variables::json,
        @call_at::timestamptz, @erasures::bigint FROM found
    ON CONFLICT (workspace_id, call_request_id, phone_e164) DO NOTHING
    RETURNING contact_id
)
INSERT INTO decisions (` + decisionColumns + `)
SELECT @decision_id::uuid, @workspace_id::uuid, @call_request_id::uuid, @phone_e164::text, placed.contact_id,
    @kind::text, @inputs::json,
       @policy_version::integer, @result::text, @rule::text, @code::text, @message::text, @call_at::timestamptz,
           @judged_at::timestamptz, @gates::json
FROM placed
RETURNING contact_id`

// SavePreCheck stores an allowed pre-check in one statement: it finds or creates the contact,
// merges the variables, and stores the result and the decision. If the inputs have changed since
// they were read, it stores nothing and returns ErrInputsChanged. The caller must then read them
// again.
func (s *Store) SavePreCheck(ctx context.Context, d Decision, inputs Inputs, merged contacts.Document,
	merge Merge) (uuid.UUID, error) {
	args, err := d.args()
	if err != nil {
		return uuid.Nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make contact id: %w", err)
	}
	args["new_contact_id"], args["variables"], args["revision"], args["erasures"] = id, merged.Encode(), inputs.Revision,
		inputs.Erasures
	sql := findContact + insertPreCheck
	if merge == MergeVariables || d.ContactID == nil {
		sql = upsertContact + insertPreCheck
	}
	found, err := pg.Value[uuid.UUID](ctx, s.pool, sql, args)
	if errors.Is(err, pg.ErrNotFound) {
		return uuid.Nil, ErrInputsChanged
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("store pre-check of request %s: %w", d.Target.CallRequestID, err)
	}
	return found, nil
}

// ErrInputsChanged is returned if the inputs were changed after they were read.
var ErrInputsChanged = errors.New("the inputs of the decision changed")

// Merge states whether the request has variables to merge.
type Merge int

// KeepVariables is for a request without variables. Such a request does not write to its contact.
const (
	KeepVariables Merge = iota
	MergeVariables
)

// StoredDecision is a decision as it was stored.
type StoredDecision struct {
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
	// Gates are the gate.GateReports. The list is empty for a decision that an earlier version
	// stored.
	Gates json.RawMessage `db:"gates"`
}

const storedColumns = `id, call_request_id, phone_e164, contact_id, kind, inputs, policy_version, result, rule, code,
	message, call_at, judged_at, coalesce(gates, '[]') AS gates`

const listDecisions = `
SELECT ` + storedColumns + `
FROM decisions
WHERE workspace_id = @workspace_id
  AND (@after::uuid IS NULL OR id < @after)
  AND (@call_request_id::uuid IS NULL OR call_request_id = @call_request_id)
  AND (@phone_e164::text IS NULL OR phone_e164 = @phone_e164)
ORDER BY id DESC
LIMIT @rows`

const decisionCursor = `
SELECT EXISTS (SELECT 1 FROM decisions WHERE workspace_id = @workspace_id AND id = @after)`

// Decisions returns one page of decisions, newest first. A zero filter matches every decision.
func (s *Store) Decisions(ctx context.Context, workspace, request uuid.UUID, number phone.Number,
	p page.Request) ([]StoredDecision, error) {
	args := pgx.NamedArgs{
		"workspace_id": workspace, "after": orNull(p.After), "call_request_id": orNull(request), "phone_e164": orNull(number),
		"rows": p.Rows(),
	}
	if err := s.checkCursor(ctx, decisionCursor, p, args); err != nil {
		return nil, err
	}
	// A cached plan for all combinations of filters would not use the indexes.
	found, err := manyWithoutPlanCache[StoredDecision](ctx, s.pool, listDecisions, args)
	if err != nil {
		return nil, fmt.Errorf("list decisions: %w", err)
	}
	return found, nil
}

const decisionByID = `
SELECT ` + storedColumns + `
FROM decisions
WHERE workspace_id = @workspace_id AND id = @id`

// DecisionByID returns one decision, or pg.ErrNotFound.
func (s *Store) DecisionByID(ctx context.Context, workspace, id uuid.UUID) (StoredDecision, error) {
	found, err := pg.One[StoredDecision](ctx, s.pool, decisionByID, pgx.NamedArgs{"workspace_id": workspace, "id": id})
	if err != nil {
		return found, fmt.Errorf("read decision: %w", err)
	}
	return found, nil
}
