// Package journal owns the statements about calls over SIP trunks: what the process that holds a call knows of it, and the news that it tells. Each change and its news are
// one statement, so that neither stands without the other, and news are numbered in the order in which they are committed.
package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/heartbeat"
)

// ErrNone says that the journal does not know the call.
var ErrNone = errors.New("the journal does not know this call")

// Journal is one process's hand on it.
type Journal struct {
	pool  *pgxpool.Pool
	owner uuid.UUID
	lease time.Duration
	// beats is the pool of the heartbeats.
	beats   *pgxpool.Pool
	monitor *heartbeat.Monitor
}

// New returns the journal of an owner; every start of a process is another owner. An owner is dead after
// lease without a heartbeat. Heartbeats use connections of beats. Nothing else may use up that pool: a
// heartbeat that waits behind other work makes a healthy process look dead.
func New(pool, beats *pgxpool.Pool, owner uuid.UUID, lease time.Duration) *Journal {
	return &Journal{pool: pool, beats: beats, owner: owner, lease: lease, monitor: heartbeat.NewMonitor(lease)}
}

// Call is one as it lies in the journal.
type Call struct {
	CallID     uuid.UUID  `db:"call_id"`
	TrunkID    uuid.UUID  `db:"trunk_id"`
	Inbound    bool       `db:"inbound"`
	From       string     `db:"from_number"`
	To         string     `db:"to_number"`
	Owner      uuid.UUID  `db:"owner"`
	Teardown   []byte     `db:"teardown"`
	DialedAt   *time.Time `db:"dialed_at"`
	RingingAt  *time.Time `db:"ringing_at"`
	AnsweredAt *time.Time `db:"answered_at"`
	EndedAt    *time.Time `db:"ended_at"`
	Cause      call.Cause `db:"cause"`
	ByUs       bool       `db:"by_us"`
	Outcome    string     `db:"outcome"`
	Reached    string     `db:"reached"`
	HangupAt   *time.Time `db:"hangup_at"`
	PickupAt   *time.Time `db:"pickup_at"`
	// Disclosure states what was played of the disclosure. It is nil before the end, and if that is not known.
	Disclosure *agent.DisclosureRecord `db:"disclosure"`
	// Attempt is only written, with the call.
	Attempt Attempt `db:"-"`
}

// Kind of news, by the words of package carrier, which a store may not use.
type Kind string

// Kinds.
const (
	Taken    Kind = "originate"
	Ringing  Kind = "ringing"
	Answered Kind = "answer"
	Said     Kind = "said"
	OptedOut Kind = "opt_out"
	Ended    Kind = "hangup"
)

// Owns says whether the call is this process's.
func (j *Journal) Owns(c Call) bool { return c.Owner == j.owner }

const begin = `
WITH begun AS (
	INSERT INTO sip_calls (call_id, trunk_id, inbound, from_number, to_number, owner, teardown, dialed_at, ringing_at)
	VALUES (@call_id, @trunk_id, @inbound, @from_number, @to_number, @owner, @teardown, @dialed_at, @ringing_at)
	ON CONFLICT (call_id) DO NOTHING RETURNING call_id
), place AS (
	UPDATE sip_feed SET seq = seq + 1 WHERE @kind <> '' AND EXISTS (SELECT 1 FROM begun) RETURNING seq
), told AS (
	INSERT INTO sip_news (seq, at, kind, call_id) SELECT seq, @at, @kind, @call_id FROM place
), attempt AS (
	INSERT INTO sip_attempts (attempt_id, call_id, trunk_id, trunk, sip_call_id)
	SELECT @attempt_id::uuid, call_id, @trunk_id, @trunk, @sip_call_id FROM begun
)
SELECT EXISTS (SELECT 1 FROM begun)`

// ErrBegun says that the call is in the journal already.
var ErrBegun = errors.New("the journal has this call already")

// Dial writes a call down before it leaves for the trunk. Nothing is told of it yet. ErrBegun when it was written before, by whomever.
func (j *Journal) Dial(ctx context.Context, c Call) error {
	return j.begin(ctx, c, "", time.Time{})
}

// Arrive writes down that somebody calls us, which rings, and tells it.
func (j *Journal) Arrive(ctx context.Context, c Call) error {
	return j.begin(ctx, c, Ringing, *c.RingingAt)
}

func (j *Journal) begin(ctx context.Context, c Call, kind Kind, at time.Time) error {
	var begun bool
	err := j.pool.QueryRow(ctx, begin, pg.Args{
		"call_id": c.CallID, "trunk_id": c.TrunkID, "inbound": c.Inbound, "from_number": c.From, "to_number": c.To, "owner": j.owner, "teardown": c.Teardown,
		"dialed_at": c.DialedAt, "ringing_at": c.RingingAt, "kind": string(kind), "at": at,
		"attempt_id": c.Attempt.ID, "trunk": c.Attempt.Trunk, "sip_call_id": storable(c.Attempt.SIPCallID),
	}).Scan(&begun)
	switch {
	case err != nil:
		return fmt.Errorf("write call %s down: %w", c.CallID, err)
	case !begun:
		return ErrBegun
	}
	return nil
}

const keep = `UPDATE sip_calls SET teardown = @teardown WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL`

// Keep notes what would end the call now.
func (j *Journal) Keep(ctx context.Context, callID uuid.UUID, teardown []byte) error {
	if _, err := j.pool.Exec(ctx, keep, pg.Args{"call_id": callID, "owner": j.owner, "teardown": teardown}); err != nil {
		return fmt.Errorf("keep what ends call %s: %w", callID, err)
	}
	return nil
}

// told are the columns and news of a change; the guard says in which state a call takes it. A call that was never told of is told from its dial on.
const (
	changed = `
	WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL`
	tell = `
	RETURNING call_id` + publish
	publish = `
), place AS (
	UPDATE sip_feed SET seq = seq + 1 WHERE EXISTS (SELECT 1 FROM changed) RETURNING seq
)
INSERT INTO sip_news (seq, at, kind, call_id, text) SELECT seq, @at, @kind, @call_id, @text FROM place`
)

const (
	take = `
WITH changed AS (
	UPDATE sip_calls SET dialed_at = @dialed_at` + changed + `
		AND NOT EXISTS (SELECT 1 FROM sip_news n WHERE n.call_id = @call_id)` + tell
	ring = `
WITH changed AS (
	UPDATE sip_calls SET ringing_at = @at` + changed + ` AND ringing_at IS NULL AND answered_at IS NULL` + tell
	answer = `
WITH changed AS (
	UPDATE sip_calls SET answered_at = @at` + changed + ` AND answered_at IS NULL` + tell
	optOut = `
WITH changed AS (
	UPDATE sip_calls SET owner = owner WHERE call_id = @call_id AND answered_at IS NOT NULL` + tell
	end = `
WITH changed AS (
	UPDATE sip_calls SET ended_at = @at, cause = @cause, by_us = @by_us, outcome = @outcome, reached = @reached,
		callback_at = @callback_at, disclosure = @disclosure, teardown = NULL` + changed + `
	RETURNING call_id, answered_at` + endAttempt + publish
)

// Take publishes that the trunk has the call, whose first INVITE left at dialedAt, Ring that it
// rings, Answer that it was answered. Each counts once, and not out of order, nor after the end,
// nor when the call is another owner's by now: told is false then.
func (j *Journal) Take(ctx context.Context, callID uuid.UUID, dialedAt, at time.Time) (told bool, err error) {
	return j.tell(ctx, take, Taken, callID, at, pg.Args{"text": "", "dialed_at": dialedAt})
}

// Ring is told once, and not after an answer.
func (j *Journal) Ring(ctx context.Context, callID uuid.UUID, at time.Time) (told bool, err error) {
	return j.tell(ctx, ring, Ringing, callID, at, pg.Args{"text": ""})
}

// Answer is told once.
func (j *Journal) Answer(ctx context.Context, callID uuid.UUID, at time.Time) (told bool, err error) {
	return j.tell(ctx, answer, Answered, callID, at, pg.Args{"text": ""})
}

// OptOut tells that the person asked not to be called again, in these words. It may be told again, and it counts whoever has the call by then, and after its end.
func (j *Journal) OptOut(ctx context.Context, callID uuid.UUID, at time.Time, quote string) (told bool, err error) {
	return j.tell(ctx, optOut, OptedOut, callID, at, pg.Args{"text": storable(quote)})
}

// storable leaves out what no text in the database may hold.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

const say = `
WITH live AS (
	SELECT call_id FROM sip_calls
	WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL AND answered_at IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM sip_news WHERE call_id = @call_id AND kind = 'said')
), place AS (
	UPDATE sip_feed SET seq = seq + @turns WHERE EXISTS (SELECT 1 FROM live) RETURNING seq - @turns AS before
)
INSERT INTO sip_news (seq, at, kind, call_id, role, text, spoken_until)
SELECT p.before + t.n, t.at, 'said', @call_id, t.role, t.text, t.until
FROM place p, unnest(@ats::timestamptz[], @roles::text[], @texts::text[], @untils::timestamptz[])
	WITH ORDINALITY AS t (at, role, text, until, n)`

// Say stores all turns of a call. It must be called once, before End.
func (j *Journal) Say(ctx context.Context, callID uuid.UUID, turns []agent.Turn) error {
	if len(turns) == 0 {
		return nil
	}
	var ats []time.Time
	var untils []*time.Time
	var roles, texts []string
	for _, turn := range turns {
		ats, roles, texts = append(ats, turn.At), append(roles, turn.Role), append(texts, storable(turn.Text))
		var until *time.Time
		if !turn.EndedAt.IsZero() {
			until = &turn.EndedAt
		}
		untils = append(untils, until)
	}
	_, err := j.pool.Exec(ctx, say, pg.Args{
		"call_id": callID, "owner": j.owner, "turns": int64(len(turns)), "ats": ats, "roles": roles, "texts": texts,
		"untils": untils,
	})
	if err != nil {
		return fmt.Errorf("tell what was said in call %s: %w", callID, err)
	}
	return nil
}

// End is how a call ended, and what the agent made of it.
type End struct {
	At               time.Time
	Cause            call.Cause
	ByUs             bool
	Outcome, Reached string
	// CallbackAt is when the person wants to be called again; nil: nothing was agreed.
	CallbackAt *time.Time
	// Disclosure states what was played of the disclosure; nil: that is not known.
	Disclosure *agent.DisclosureRecord
	// Answer is the trunk's final answer to the INVITE.
	Answer Answer
}

// End stores the end of a call and publishes it. Only the first end counts.
func (j *Journal) End(ctx context.Context, callID uuid.UUID, e End) (told bool, err error) {
	return j.tell(ctx, end, Ended, callID, e.At, pg.Args{
		"cause": string(e.Cause), "by_us": e.ByUs, "outcome": e.Outcome, "reached": e.Reached, "callback_at": e.CallbackAt,
		"disclosure": e.Disclosure, "text": "", "status": e.Answer.Status, "reason": shortened(e.Answer.Reason),
		"error": shortened(e.Answer.Error),
	})
}

func (j *Journal) tell(ctx context.Context, sql string, kind Kind, callID uuid.UUID, at time.Time, args pg.Args) (bool, error) {
	args["call_id"], args["owner"], args["at"], args["kind"] = callID, j.owner, at, string(kind)
	done, err := j.pool.Exec(ctx, sql, args)
	if err != nil {
		return false, fmt.Errorf("tell %s of call %s: %w", kind, callID, err)
	}
	return done.RowsAffected() == 1, nil
}

const columns = `call_id, trunk_id, inbound, from_number, to_number, owner, teardown, dialed_at, ringing_at, answered_at, ended_at, cause, by_us, outcome, reached,
	hangup_at, pickup_at, disclosure`

const find = `SELECT ` + columns + ` FROM sip_calls WHERE call_id = @call_id`

// Find is one call; ErrNone when there is none.
func (j *Journal) Find(ctx context.Context, callID uuid.UUID) (Call, error) {
	return j.one(ctx, find, callID)
}

func (j *Journal) one(ctx context.Context, sql string, callID uuid.UUID) (Call, error) {
	rows, err := j.pool.Query(ctx, sql, pg.Args{"call_id": callID, "owner": j.owner, "lease": j.lease})
	if err != nil {
		return Call{}, fmt.Errorf("read call %s: %w", callID, err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Call])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Call{}, ErrNone
	case err != nil:
		return Call{}, fmt.Errorf("read call %s: %w", callID, err)
	}
	return found, nil
}
