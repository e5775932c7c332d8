package store

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
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/replicas"
)

// Legs stores the SIP legs of calls, for one owner: which process owns a leg, its teardown state,
// and whether it has ended. The status of the call is in the call's row. The transactions that
// change that row begin with a guard of Legs.
type Legs struct {
	pool       *pgxpool.Pool
	owner      uuid.UUID
	lease      time.Duration
	heartbeats *pgxpool.Pool
	monitor    *replicas.Monitor
}

// NewLegs returns a store for an owner. Each start of a process is a new owner. An owner is dead if
// it has sent no heartbeat for the duration lease. heartbeatPool must have one connection for each
// heartbeat that uses it, because a heartbeat that waits for a connection is late.
func NewLegs(pool, heartbeatPool *pgxpool.Pool, owner uuid.UUID, lease time.Duration) *Legs {
	return &Legs{pool: pool, heartbeats: heartbeatPool, owner: owner, lease: lease, monitor: replicas.NewMonitor(lease)}
}

// Leg is the SIP leg of a call.
type Leg struct {
	CallID   uuid.UUID       `db:"call_id"`
	TrunkID  uuid.UUID       `db:"trunk_id"`
	Inbound  bool            `db:"inbound"`
	From     string          `db:"from_number"`
	To       string          `db:"to_number"`
	Owner    uuid.UUID       `db:"owner"`
	Teardown []byte          `db:"teardown"`
	EndedAt  *time.Time      `db:"ended_at"`
	Cause    callstate.Cause `db:"cause"`
	ByUs     bool            `db:"by_us"`
	HangupAt *time.Time      `db:"hangup_at"`
	PickupAt *time.Time      `db:"pickup_at"`
	// DialedAt, RingingAt and AnsweredAt are the times in the call's row. If the row has no dialed_at
	// yet, DialedAt is the time at which the leg was stored, shortly before the INVITE.
	DialedAt   *time.Time `db:"dialed_at"`
	RingingAt  *time.Time `db:"ringing_at"`
	AnsweredAt *time.Time `db:"answered_at"`
	// WorkspaceID is the workspace of the call. It is uuid.Nil if the call has no row.
	WorkspaceID uuid.UUID `db:"workspace_id"`
	// Ending is the reason for which the dialer hangs up the call, from the column calls.ending. It is
	// empty if the dialer does not hang up the call or the call has no row.
	Ending callstate.Ending `db:"ending"`
	// Attempt is stored together with the leg. Queries for legs do not return it.
	Attempt TrunkAttempt `db:"-"`
	// Channels is the number of channels of the trunk. If all channels are in use, the leg is not
	// stored. 0 means that the number of channels is not limited.
	Channels int32 `db:"-"`
}

const (
	beginLeg = `
WITH begun AS (
	INSERT INTO sip_legs (call_id, trunk_id, inbound, from_number, to_number, owner, teardown, dialed_at)
	SELECT @call_id::uuid, @trunk_id::uuid, @inbound::boolean, @from_number::text, @to_number::text, @owner::uuid,
		@teardown::bytea, CASE WHEN NOT @inbound THEN coalesce(@dialed_at::timestamptz, now()) END
	WHERE @channels::integer = 0 OR trunk_has_channel(@trunk_id, @channels)
	ON CONFLICT (call_id) DO NOTHING RETURNING call_id
)
INSERT INTO sip_attempts (attempt_id, call_id, trunk_id, trunk, sip_call_id)
SELECT @attempt_id::uuid, call_id, @trunk_id, @trunk, @sip_call_id FROM begun
ON CONFLICT (attempt_id) DO UPDATE SET ended_at = NULL`

	// The row lock prevents another process from taking over the leg before the events commit.
	lockOwnedLeg = `
SELECT call_id FROM sip_legs WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL FOR UPDATE`

	answerOwnedLeg = `
UPDATE sip_legs SET answered_at = @at WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL`

	endLeg = `
WITH changed AS (
	UPDATE sip_legs SET ended_at = @at, cause = @cause, by_us = @by_us, callback_at = @callback_at, teardown = NULL,
		answered_at = coalesce(answered_at, @answered_at)
	WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL
	RETURNING call_id, answered_at` + endAttempt + `
)
SELECT call_id FROM changed`
)

// ErrLegExists is returned if the call has a leg already.
var ErrLegExists = errors.New("the call has a leg already")

// StoreOutbound stores a leg before its INVITE is sent. If a failover lost the row of a leg,
// StoreOutbound stores it again with the DialedAt of the leg. It returns ErrLegExists if any
// process has already stored a leg of the call, and ErrChannels if the trunk has no free channel.
func (j *Legs) StoreOutbound(ctx context.Context, c Leg) error {
	did, err := j.pool.Exec(ctx, beginLeg, j.beginArgs(c))
	if err != nil {
		return fmt.Errorf("store leg of call %s: %w", c.CallID, err)
	}
	if did.RowsAffected() == 0 {
		return j.conflictError(ctx, c)
	}
	return nil
}

// ArrivalGuard returns the guard for the first event of an inbound call. The guard also stores the
// leg.
func (j *Legs) ArrivalGuard(c Leg) Guard { return RowGuard(beginLeg, j.beginArgs(c)) }

func (j *Legs) beginArgs(c Leg) pg.Args {
	return pg.Args{
		"call_id": c.CallID, "trunk_id": c.TrunkID, "inbound": c.Inbound, "from_number": c.From, "to_number": c.To,
		"owner": j.owner, "teardown": c.Teardown, "attempt_id": c.Attempt.ID, "trunk": c.Attempt.Trunk,
		"sip_call_id": removeInvalid(c.Attempt.SIPCallID), "channels": c.Channels,
		"dialed_at": c.DialedAt,
	}
}

// Guard returns the guard for events of a leg. The guard returns ErrLost unless this process owns
// the leg and the leg has not ended.
func (j *Legs) Guard(callID uuid.UUID) Guard {
	return RowGuard(lockOwnedLeg, pg.Args{"call_id": callID, "owner": j.owner})
}

// AnswerGuard returns the guard for the event of the answer. It also stores answeredAt as the time
// of the answer. The guard refuses the event if this process does not own the leg.
func (j *Legs) AnswerGuard(callID uuid.UUID, answeredAt time.Time) Guard {
	return RowGuard(answerOwnedLeg, pg.Args{"call_id": callID, "owner": j.owner, "at": answeredAt})
}

// End describes the end of a leg.
type End struct {
	At    time.Time
	Cause callstate.Cause
	ByUs  bool
	// AnsweredAt is not nil if the same transaction also applies the answer.
	AnsweredAt *time.Time
	// CallbackAt is the time at which the person wants to be called back. It is nil if no callback was
	// agreed.
	CallbackAt *time.Time
	// Answer is the final response of the trunk to the INVITE.
	Answer Answer
}

// EndGuard returns the guard for the last events of a leg. It also ends the leg and its attempt. A
// leg ends only once: later guards return ErrLost.
func (j *Legs) EndGuard(callID uuid.UUID, e End) Guard {
	return RowGuard(endLeg, pg.Args{
		"call_id": callID, "owner": j.owner, "at": e.At, "cause": string(e.Cause), "by_us": e.ByUs,
		"answered_at": e.AnsweredAt, "callback_at": e.CallbackAt, "status": e.Answer.Status,
		"reason": shortenText(e.Answer.Reason), "error": shortenText(e.Answer.Error),
	})
}

const storeTeardown = `
UPDATE sip_legs SET teardown = @teardown WHERE call_id = @call_id AND owner = @owner AND ended_at IS NULL`

// StoreTeardown stores the data that another process needs to end the leg. If this process does not
// own the leg any more, StoreTeardown changes nothing.
func (j *Legs) StoreTeardown(ctx context.Context, callID uuid.UUID, teardown []byte) error {
	args := pg.Args{"call_id": callID, "owner": j.owner, "teardown": teardown}
	if _, err := j.pool.Exec(ctx, storeTeardown, args); err != nil {
		return fmt.Errorf("store teardown state of call %s: %w", callID, err)
	}
	return nil
}

// removeInvalid removes NUL bytes and invalid UTF-8, which a text column cannot store.
func removeInvalid(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

const legColumns = `s.call_id, s.trunk_id, s.inbound, s.from_number, s.to_number, s.owner, s.teardown, s.ended_at, s.cause,
	s.by_us, s.hangup_at, s.pickup_at, coalesce(c.dialed_at, s.dialed_at) AS dialed_at,
	c.ringing_at, coalesce(c.answered_at, s.answered_at) AS answered_at,
	coalesce(c.workspace_id, '00000000-0000-0000-0000-000000000000') AS workspace_id, coalesce(c.ending, '') AS ending`

const findLeg = `
SELECT ` + legColumns + ` FROM sip_legs s LEFT JOIN calls c ON c.call_id = s.call_id WHERE s.call_id = @call_id`

// Find returns the leg of a call. It returns pg.ErrNotFound if the call has no leg.
func (j *Legs) Find(ctx context.Context, callID uuid.UUID) (Leg, error) {
	return j.queryLeg(ctx, findLeg, callID)
}

func (j *Legs) queryLeg(ctx context.Context, sql string, callID uuid.UUID) (Leg, error) {
	found, err := pg.One[Leg](ctx, j.pool, sql, pgx.NamedArgs{"call_id": callID})
	if err != nil {
		return Leg{}, fmt.Errorf("read leg of call %s: %w", callID, err)
	}
	return found, nil
}
