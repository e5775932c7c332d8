package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// The SELECT excludes versions that are already stored, because ON CONFLICT DO UPDATE locks the row
// even if its WHERE is false. A batch of events must not lock rows that ApplySetting has stored.
// The UPDATE does not change the mode, because the events of earlier gateway versions do not
// contain it. If such an event does not contain the inbound settings, the stored ones are kept.
const saveWorkspace = `
INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second, destinations,
	recordings, keep_recordings_days, test, inbound_per_minute_micro, inbound_increment_seconds, inbound_max_concurrent,
	inbound_max_call_seconds)
SELECT @workspace_id::uuid, @version::bigint, @status::text, @api_enabled::boolean, @max_live_calls::int,
	@calls_per_second::int, @destinations::text[], @recordings::boolean, nullif(@keep_recordings_days::int, 0),
	@test::boolean, @inbound_per_minute::bigint, @inbound_increment::int, @inbound_max_concurrent::int,
	@inbound_max_seconds::int
WHERE NOT EXISTS (SELECT FROM workspaces WHERE workspace_id = @workspace_id AND version >= @version)
ON CONFLICT (workspace_id) DO UPDATE SET version = EXCLUDED.version, status = EXCLUDED.status,
	api_enabled = EXCLUDED.api_enabled, max_live_calls = EXCLUDED.max_live_calls,
	calls_per_second = EXCLUDED.calls_per_second, destinations = EXCLUDED.destinations,
	recordings = EXCLUDED.recordings, keep_recordings_days = EXCLUDED.keep_recordings_days,
	inbound_per_minute_micro = CASE WHEN @inbound_known THEN EXCLUDED.inbound_per_minute_micro
		ELSE workspaces.inbound_per_minute_micro END,
	inbound_increment_seconds = CASE WHEN @inbound_known THEN EXCLUDED.inbound_increment_seconds
		ELSE workspaces.inbound_increment_seconds END,
	inbound_max_concurrent = CASE WHEN @inbound_known THEN EXCLUDED.inbound_max_concurrent
		ELSE workspaces.inbound_max_concurrent END,
	inbound_max_call_seconds = CASE WHEN @inbound_known THEN EXCLUDED.inbound_max_call_seconds
		ELSE workspaces.inbound_max_call_seconds END
WHERE workspaces.version < EXCLUDED.version`

// makeWorkspaceDue makes the waiting requests of a workspace due, so that they end as blocked
// within seconds. If the workspace is not suspended, the requests of people stay as they are. The
// LIMIT bounds how long one record delays the records that follow. Requests beyond the LIMIT end at
// their due time.
const makeWorkspaceDue = `
UPDATE dial_queue SET look_at = now(), held = false WHERE call_request_id = ANY (ARRAY(
	SELECT call_request_id FROM dial_queue
	WHERE workspace_id = @workspace_id AND state = 'queued' AND claimed_by IS NULL AND look_at > now()
		AND (@suspended::boolean OR NOT by_person)
	ORDER BY look_at LIMIT 20000 FOR UPDATE SKIP LOCKED))`

const makeAgentDue = `
UPDATE dial_queue SET look_at = now(), held = false WHERE call_request_id = ANY (ARRAY(
	SELECT call_request_id FROM dial_queue
	WHERE agent_id = @agent_id AND state = 'queued' AND claimed_by IS NULL AND look_at > now()
	ORDER BY look_at LIMIT 20000 FOR UPDATE SKIP LOCKED))`

// ApplyWorkspace stores a workspace for ApplySetting in its own transaction. When it returns nil,
// this version or a newer one is committed, and every later dial-time check reads the committed
// version.
func (s *Store) ApplyWorkspace(ctx context.Context, w dialqueue.Workspace) error {
	return s.inTx(ctx, func(tx pgx.Tx) error { return s.SaveWorkspace(ctx, tx, w) })
}

// SaveWorkspace stores a workspace unless w.Version or a newer version is stored. If the workspace
// may not dial, its queued requests become due immediately, so that they end as blocked. Without
// API access, this applies only to requests of API keys.
func (s *Store) SaveWorkspace(ctx context.Context, tx pgx.Tx, w dialqueue.Workspace) error {
	inbound := dialqueue.DefaultInbound()
	if w.Inbound != nil {
		inbound = *w.Inbound
	}
	saved, err := tx.Exec(ctx, saveWorkspace, pg.Args{
		"workspace_id": w.WorkspaceID, "version": w.Version, "status": w.Status, "api_enabled": w.APIEnabled,
		"max_live_calls": w.MaxLiveCalls, "calls_per_second": w.CallsPerSecond, "destinations": append([]string{}, w.Destinations...),
		"recordings": w.Recordings, "keep_recordings_days": w.KeepRecordingsDays,
		"test": w.Test, "inbound_known": w.Inbound != nil, "inbound_per_minute": int64(inbound.PerMinute),
		"inbound_increment": inbound.IncrementSeconds, "inbound_max_concurrent": inbound.MaxConcurrent,
		"inbound_max_seconds": inbound.MaxCallSeconds,
	})
	if err != nil {
		return fmt.Errorf("save workspace %s: %w", w.WorkspaceID, err)
	}
	if w.MayDial(false) || saved.RowsAffected() == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, makeWorkspaceDue, pg.Args{
		"workspace_id": w.WorkspaceID, "suspended": w.Suspended(),
	}); err != nil {
		return fmt.Errorf("make requests of workspace %s due: %w", w.WorkspaceID, err)
	}
	return nil
}

const saveAgent = `
INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, max_call_seconds, settings, deleted)
SELECT @agent_id::uuid, @workspace_id::uuid, @version::bigint, @name::text, @from_e164::text, @max_call_seconds::int,
	@settings::json, @deleted::boolean
WHERE NOT EXISTS (SELECT FROM agents WHERE agent_id = @agent_id AND version >= @version)
ON CONFLICT (agent_id) DO UPDATE SET version = EXCLUDED.version, name = EXCLUDED.name, from_e164 = EXCLUDED.from_e164,
	max_call_seconds = EXCLUDED.max_call_seconds, settings = EXCLUDED.settings, deleted = EXCLUDED.deleted
WHERE agents.version < EXCLUDED.version`

const deleteKeyOfAgent = `
DELETE FROM agent_keys k USING agents a
WHERE k.workspace_id = @workspace_id AND k.agent_id = @agent_id AND a.agent_id = k.agent_id AND a.workspace_id = k.workspace_id AND a.deleted`

// ApplyAgent stores an agent for ApplySetting in its own transaction. When it returns nil, this
// version or a newer one is committed, and every later dial-time check reads the committed version.
func (s *Store) ApplyAgent(ctx context.Context, a dialqueue.Agent) error {
	return s.inTx(ctx, func(tx pgx.Tx) error { return s.SaveAgent(ctx, tx, a) })
}

// SaveAgent stores an agent unless this version or a newer one is already stored. If the agent is
// deleted, its queued requests become due immediately, so that they end as blocked. The key of a
// deleted agent is deleted, and its pause ends.
func (s *Store) SaveAgent(ctx context.Context, tx pgx.Tx, a dialqueue.Agent) error {
	_, err := tx.Exec(ctx, saveAgent, pg.Args{
		"agent_id": a.AgentID, "workspace_id": a.WorkspaceID, "version": a.Version, "name": a.Name, "from_e164": a.FromE164,
		"max_call_seconds": a.MaxCallSeconds, "settings": string(a.Settings), "deleted": a.Deleted,
	})
	if err != nil {
		return fmt.Errorf("save agent %s: %w", a.AgentID, err)
	}
	if !a.Deleted {
		return nil
	}
	if _, err := tx.Exec(ctx, endPausesOfAgent, pg.Args{"id": a.AgentID}); err != nil {
		return fmt.Errorf("end pauses of agent %s: %w", a.AgentID, err)
	}
	if _, err := tx.Exec(ctx, makeAgentDue, pg.Args{"agent_id": a.AgentID}); err != nil {
		return fmt.Errorf("make requests of agent %s due: %w", a.AgentID, err)
	}
	if _, err := tx.Exec(ctx, deleteKeyOfAgent,
		pg.Args{"workspace_id": a.WorkspaceID, "agent_id": a.AgentID}); err != nil {
		return fmt.Errorf("delete key of agent %s: %w", a.AgentID, err)
	}
	return nil
}

const agentModels = `
SELECT DISTINCT m.model FROM agents a, LATERAL (VALUES (a.settings ->> 'model'),
	(a.settings -> 'summary' ->> 'model')) AS m (model)
WHERE NOT a.deleted AND m.model <> ''`

// AgentModels returns the distinct models that the agents of all workspaces use for their
// conversations and summaries. Deleted agents do not count.
func (s *Store) AgentModels(ctx context.Context) ([]string, error) {
	models, err := pg.Values[string](ctx, s.pool, agentModels, nil)
	if err != nil {
		return nil, fmt.Errorf("read models of agents: %w", err)
	}
	return models, nil
}

const workspacesByID = `
SELECT workspace_id, version, status, api_enabled, max_live_calls, calls_per_second, destinations, test
FROM workspaces WHERE workspace_id = ANY (@workspaces::uuid[])`

const agentsByID = `
SELECT agent_id, workspace_id, version, name, from_e164, max_call_seconds, deleted,
	coalesce(settings->>'kind', '') AS kind, coalesce(settings->>'base_url', '') AS base_url,
	coalesce(settings->>'media_url', '') AS media_url
FROM agents WHERE agent_id = ANY (@agents::uuid[])`

const orderOfCall = `
SELECT c.workspace_id, c.agent_id, CASE WHEN c.direction = 'inbound' THEN c.from_number ELSE c.to_e164 END AS person, c.time_zone, c.variables::text AS variables,
	c.max_call_seconds, coalesce(a.settings, '{}')::text AS settings, NOT c.erased AND EXISTS (
		SELECT 1 FROM workspaces w WHERE w.workspace_id = c.workspace_id AND w.recordings) AS recorded
FROM calls c LEFT JOIN agents a ON a.agent_id = c.agent_id AND a.workspace_id = c.workspace_id
WHERE c.call_id = @call_id`

// ConversationInputs contains the settings of a call's conversation. Variables and Settings are
// JSON objects. Variables can be nil.
type ConversationInputs struct {
	WorkspaceID, AgentID uuid.UUID
	// Person is the phone number of the person. TimeZone is "" if the time zone is unknown.
	Person, TimeZone    string
	Variables, Settings []byte
	MaxCallSeconds      int32
	// Recorded is true if the workspace records its calls.
	Recorded bool
}

const openingOfAgent = `
SELECT coalesce(a.settings, '{}')::text AS settings, EXISTS (
	SELECT FROM workspaces w WHERE w.workspace_id = a.workspace_id AND w.recordings) AS recorded
FROM agents a WHERE a.agent_id = @id AND a.workspace_id = @workspace_id AND NOT a.deleted`

// AgentOpening contains the settings for the first words of an agent, as a JSON object. Recorded
// is true if the workspace records its calls.
type AgentOpening struct {
	Settings []byte
	Recorded bool
}

// AgentOpening returns the settings for the first words of an agent. It returns pg.ErrNotFound if
// the workspace has no such agent.
func (s *Store) AgentOpening(ctx context.Context, workspaceID, agentID uuid.UUID) (o AgentOpening, err error) {
	var settings string
	args := pg.Args{"id": agentID, "workspace_id": workspaceID}
	err = s.pool.QueryRow(ctx, openingOfAgent, args).Scan(&settings, &o.Recorded)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, pg.ErrNotFound
	}
	if err != nil {
		return o, fmt.Errorf("read the opening of agent %s: %w", agentID, err)
	}
	o.Settings = []byte(settings)
	return o, nil
}

const workspaceOfCall = `
SELECT w.workspace_id, w.version, w.status, w.api_enabled, w.max_live_calls, w.calls_per_second, w.destinations, w.test
FROM calls c JOIN workspaces w ON w.workspace_id = c.workspace_id WHERE c.call_id = @call_id`

// WorkspaceOfCall returns the workspace of a call. It returns ErrNoCall if there is no such call.
func (s *Store) WorkspaceOfCall(ctx context.Context, callID uuid.UUID) (dialqueue.Workspace, error) {
	found, err := pg.One[dialqueue.Workspace](ctx, s.pool, workspaceOfCall, pgx.NamedArgs{"call_id": callID})
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return dialqueue.Workspace{}, ErrNoCall
	case err != nil:
		return dialqueue.Workspace{}, fmt.Errorf("read the workspace of call %s: %w", callID, err)
	}
	return found, nil
}

// ErrNoCall is returned if there is no such call.
var ErrNoCall = errors.New("no such call")

// ConversationInputs returns the settings of a call's conversation. It returns ErrNoCall if there
// is no such call.
func (s *Store) ConversationInputs(ctx context.Context, callID uuid.UUID) (o ConversationInputs, err error) {
	var variables *string
	var settings string
	err = s.pool.QueryRow(ctx, orderOfCall, pg.Args{"call_id": callID}).Scan(&o.WorkspaceID, &o.AgentID, &o.Person, &o.TimeZone, &variables, &o.MaxCallSeconds, &settings, &o.Recorded)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, ErrNoCall
	}
	if err != nil {
		return o, fmt.Errorf("read conversation inputs of call %s: %w", callID, err)
	}
	if o.Settings = []byte(settings); variables != nil {
		o.Variables = []byte(*variables)
	}
	return o, nil
}

// dueAnalyses steps from workspace to workspace through the index. It reads one index entry per
// workspace, even if many calls of a workspace wait for their analysis.
const dueAnalyses = `
WITH RECURSIVE walk (workspace_id, n) AS (
	(SELECT c.workspace_id, 1 FROM calls c WHERE c.analyse_at IS NOT NULL AND c.workspace_id > @after ORDER BY c.workspace_id LIMIT 1)
	UNION ALL
	SELECT (SELECT c.workspace_id FROM calls c WHERE c.analyse_at IS NOT NULL AND c.workspace_id > walk.workspace_id ORDER BY c.workspace_id LIMIT 1), walk.n + 1
	FROM walk WHERE walk.workspace_id IS NOT NULL AND walk.n < @steps::integer
)
SELECT walk.workspace_id, walk.n = @steps AS last, coalesce((SELECT true FROM calls c
	WHERE c.workspace_id = walk.workspace_id AND c.analyse_at <= now() ORDER BY c.analyse_at LIMIT 1), false) AS due
FROM walk WHERE walk.workspace_id IS NOT NULL ORDER BY walk.n`

const takeAnalyses = `
WITH due AS MATERIALIZED (
	SELECT oldest.call_id FROM unnest(@workspaces::uuid[], @counts::int[]) AS w (workspace_id, count), LATERAL (
		SELECT c.call_id FROM calls c WHERE c.workspace_id = w.workspace_id AND c.analyse_at <= now()
		ORDER BY c.analyse_at LIMIT w.count FOR UPDATE SKIP LOCKED) oldest
	LIMIT @most
), claimed AS (
	UPDATE calls SET analyse_at = now() + interval '90 seconds', analyses = analyses + 1
	WHERE call_id = ANY (ARRAY(SELECT due.call_id FROM due))
	RETURNING call_id, workspace_id, agent_id, CASE WHEN direction = 'inbound' THEN from_number ELSE to_e164 END AS person, time_zone, turns, ended_at, outcome, analyses
)
SELECT d.call_id, d.workspace_id, d.agent_id, d.person, d.time_zone, d.turns, d.ended_at, d.outcome, d.analyses, convert_to(coalesce(a.settings, '{}')::text, 'UTF8') AS settings, s.callback_at
FROM claimed d LEFT JOIN agents a ON a.agent_id = d.agent_id AND a.workspace_id = d.workspace_id
	LEFT JOIN sip_legs s ON s.call_id = d.call_id`

// Analysis is an ended call whose conversation must be summarized. Analyses is the number of times
// that the analysis was started, including this time.
type Analysis struct {
	CallID      uuid.UUID    `db:"call_id"`
	WorkspaceID uuid.UUID    `db:"workspace_id"`
	AgentID     uuid.UUID    `db:"agent_id"`
	Person      string       `db:"person"`
	TimeZone    string       `db:"time_zone"`
	Turns       []agent.Turn `db:"turns"`
	EndedAt     time.Time    `db:"ended_at"`
	Outcome     string       `db:"outcome"`
	Analyses    int32        `db:"analyses"`
	Settings    []byte       `db:"settings"`
	CallbackAt  *time.Time   `db:"callback_at"`
}

// AnalysisLimits limits a claim of analyses. Total is the highest number of claimed analyses.
// PerWorkspace is the highest number of concurrent analyses of a workspace. Ongoing is the current
// number, by workspace.
type AnalysisLimits struct {
	Total, PerWorkspace int
	Ongoing             map[uuid.UUID]int
}

// DueAnalyses claims calls whose analysis is due. It searches up to 64 workspaces in the order of
// their ids, starting after previousWorkspace. A claimed call is due again after 90 s unless its
// analysis is stored before. next must be passed as previousWorkspace to the next call of
// DueAnalyses. It is uuid.Nil after the last workspace.
func (s *Store) DueAnalyses(ctx context.Context, previousWorkspace uuid.UUID, limits AnalysisLimits) (due []Analysis,
	next uuid.UUID, err error) {
	workspaces, left, next, err := s.workspacesWithAnalyses(ctx, previousWorkspace, limits)
	if err != nil || len(workspaces) == 0 {
		return nil, next, err
	}
	args := pg.Args{"workspaces": workspaces, "counts": left, "most": limits.Total}
	if due, err = pg.Many[Analysis](ctx, s.pool, takeAnalyses, args); err != nil {
		return nil, uuid.Nil, fmt.Errorf("claim analyses: %w", err)
	}
	if len(due) == limits.Total { // the next call continues after the last workspace that was served
		next = slices.MaxFunc(due, func(a, b Analysis) int { return bytes.Compare(a.WorkspaceID[:], b.WorkspaceID[:]) }).WorkspaceID
	}
	return due, next, nil
}

// workspacesWithAnalyses returns workspaces with due analyses. left is the number of analyses that
// each workspace may start.
func (s *Store) workspacesWithAnalyses(ctx context.Context, previousWorkspace uuid.UUID,
	limits AnalysisLimits) (workspaces []uuid.UUID, left []int, next uuid.UUID, err error) {
	rows, err := s.pool.Query(ctx, dueAnalyses, pg.Args{"after": previousWorkspace, "steps": dialqueue.WorkspacesPerClaim})
	if err != nil {
		return nil, nil, uuid.Nil, fmt.Errorf("find due analyses: %w", err)
	}
	var workspace uuid.UUID
	var last, due bool
	if _, err = pgx.ForEachRow(rows, []any{&workspace, &last, &due}, func() error {
		if last {
			next = workspace
		}
		if n := limits.PerWorkspace - limits.Ongoing[workspace]; due && n > 0 {
			workspaces, left = append(workspaces, workspace), append(left, n)
		}
		return nil
	}); err != nil {
		return nil, nil, uuid.Nil, fmt.Errorf("find due analyses: %w", err)
	}
	return workspaces, left, next, nil
}

const numbersOfAgents = `
SELECT DISTINCT ON (agent_id) agent_id, phone_e164 FROM numbers WHERE agent_id = ANY (@agents::uuid[])
ORDER BY agent_id, number_id`

const pendingOptOuts = `
SELECT workspace_id, phone_e164 FROM opt_outs
WHERE workspace_id = ANY (@workspaces::uuid[]) AND phone_e164 = ANY (@phones::text[])
	AND (acknowledged_at IS NULL OR acknowledged_at > now() - interval '5 seconds')`

// DialInputs contains what the dialer must know about a request before the dial. Workspace and
// Agent are nil if they are unknown. Number is "" if no number is assigned to the agent. OptedOut
// is true if the person opted out during a call and contacts-compliance possibly has not stored the
// opt-out yet.
type DialInputs struct {
	Workspace *dialqueue.Workspace
	Agent     *dialqueue.Agent
	Number    string
	OptedOut  bool
}

// DialInputs reads the inputs of the dial-time checks of the requests in one round trip.
func (s *Store) DialInputs(ctx context.Context, requests ...dialqueue.Request) ([]DialInputs, error) {
	var workspaceIDs, agentIDs []uuid.UUID
	var phones []string
	for _, r := range requests {
		phones = append(phones, string(r.To))
		if !slices.Contains(workspaceIDs, r.WorkspaceID) {
			workspaceIDs = append(workspaceIDs, r.WorkspaceID)
		}
		if !slices.Contains(agentIDs, r.AgentID) {
			agentIDs = append(agentIDs, r.AgentID)
		}
	}
	args := pg.Args{"workspaces": workspaceIDs, "agents": agentIDs, "phones": phones}
	workspaces, agents := map[uuid.UUID]*dialqueue.Workspace{}, map[uuid.UUID]*dialqueue.Agent{}
	numbers, optedOut := map[uuid.UUID]string{}, map[person]bool{}
	var batch pgx.Batch
	batch.Queue(workspacesByID, args).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[dialqueue.Workspace])
		for _, w := range found {
			workspaces[w.WorkspaceID] = w
		}
		return err
	})
	batch.Queue(agentsByID, args).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[dialqueue.Agent])
		for _, a := range found {
			agents[a.AgentID] = a
		}
		return err
	})
	batch.Queue(numbersOfAgents, args).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var number string
		_, err := pgx.ForEachRow(rows, []any{&id, &number}, func() error { numbers[id] = number; return nil })
		return err
	})
	batch.Queue(pendingOptOuts, args).Query(func(rows pgx.Rows) error {
		var who person
		_, err := pgx.ForEachRow(rows, []any{&who.workspaceID, &who.phone}, func() error { optedOut[who] = true; return nil })
		return err
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("read dial inputs of %d requests: %w", len(requests), err)
	}
	known := make([]DialInputs, len(requests))
	for i, r := range requests {
		known[i] = DialInputs{
			Workspace: workspaces[r.WorkspaceID], Agent: agents[r.AgentID], Number: numbers[r.AgentID],
			OptedOut: optedOut[person{r.WorkspaceID, string(r.To)}],
		}
	}
	return known, nil
}

type person struct {
	workspaceID uuid.UUID
	phone       string
}

const insertNumber = `
INSERT INTO numbers (number_id, workspace_id, phone_e164, agent_id)
SELECT @number_id, @workspace_id, @phone_e164, a.agent_id
FROM agents a WHERE a.agent_id = @agent_id AND a.workspace_id = @workspace_id AND NOT a.deleted
RETURNING number_id`

// ErrTaken is returned if the number is already assigned. ErrNoAgent is returned if the workspace
// has no agent with the given id in this database.
var (
	ErrTaken   = errors.New("the number is taken")
	ErrNoAgent = errors.New("no such agent")
)

// AddNumber assigns a number to an agent of the workspace. From then on, the agent answers inbound
// calls to the number.
func (s *Store) AddNumber(ctx context.Context, n dialqueue.Number) error {
	_, err := pg.Value[uuid.UUID](ctx, s.pool, insertNumber, pg.Args{
		"number_id": n.NumberID, "workspace_id": n.WorkspaceID, "phone_e164": n.PhoneE164, "agent_id": n.AgentID,
	})
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return ErrNoAgent
	case errors.As(err, &refused) && refused.Code == "23505":
		return ErrTaken
	case err != nil:
		return fmt.Errorf("add number: %w", err)
	}
	return nil
}

const numberByID = `
SELECT number_id, workspace_id, phone_e164, agent_id FROM numbers WHERE workspace_id = @workspace_id AND number_id = @number_id`

// Number returns a number of a workspace, or nil if there is none.
func (s *Store) Number(ctx context.Context, workspaceID, numberID uuid.UUID) (*dialqueue.Number, error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "number_id": numberID}
	found, err := pg.One[dialqueue.Number](ctx, s.pool, numberByID, args)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read number %s: %w", numberID, err)
	}
	return &found, nil
}

const listNumbers = `
SELECT number_id, workspace_id, phone_e164, agent_id FROM numbers
WHERE workspace_id = @workspace_id AND (@after::uuid IS NULL OR number_id < @after)
ORDER BY number_id DESC LIMIT @rows`

// Numbers lists the numbers of a workspace, newest first.
func (s *Store) Numbers(ctx context.Context, workspaceID uuid.UUID, asked page.Request) ([]dialqueue.Number, error) {
	args := pgx.NamedArgs{"workspace_id": workspaceID, "after": (*uuid.UUID)(nil), "rows": asked.Rows()}
	if asked.After != uuid.Nil {
		args["after"] = &asked.After
	}
	found, err := pg.Many[dialqueue.Number](ctx, s.pool, listNumbers, args)
	if err != nil {
		return nil, fmt.Errorf("list numbers: %w", err)
	}
	return found, nil
}

const deleteNumber = `DELETE FROM numbers WHERE workspace_id = @workspace_id AND number_id = @number_id`

// RemoveNumber removes a number from a workspace. found is false if the workspace does not have the
// number.
func (s *Store) RemoveNumber(ctx context.Context, workspaceID, numberID uuid.UUID) (found bool, err error) {
	done, err := s.pool.Exec(ctx, deleteNumber, pg.Args{"workspace_id": workspaceID, "number_id": numberID})
	if err != nil {
		return false, fmt.Errorf("remove number %s: %w", numberID, err)
	}
	return done.RowsAffected() == 1, nil
}
