package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// ErrServerChanged is returned if this database server is not the one that was reconciled with
// dial-intents.v1. It can be a promoted standby or a restored backup, which lacks the last fences.
var ErrServerChanged = errors.New("the database server is not the one that was reconciled with dial-intents.v1")

// ErrReconciled is returned if another process has already reconciled the database server.
var ErrReconciled = errors.New("another process has already reconciled the database server")

type serverGuard struct{ server atomic.Pointer[string] }

// UseServer sets the only database server on which the store claims requests, commits fences, ends
// calls and requests after a timeout, and reads the carrier's events. Before the first call of
// UseServer, any server is permitted. ApplyEvents is always permitted.
func (s *Store) UseServer(identity string) { s.guard.server.Store(&identity) }

func (s *Store) server() string {
	if identity := s.guard.server.Load(); identity != nil {
		return *identity
	}
	return ""
}

// onServer is an SQL condition. It is true on the database server that was set with UseServer, or
// if no server was set. It needs the argument @server.
const onServer = `(@server::text = '' OR server_identity() = @server::text)`

const checkServer = `SELECT ` + onServer

func sameServer(row pgx.Row) error {
	var same bool
	if err := row.Scan(&same); err != nil {
		return err
	}
	if !same {
		return ErrServerChanged
	}
	return nil
}

// Instance returns the id of this process. The id is stored in fences, calls and intents.
func (s *Store) Instance() uuid.UUID { return s.instance }

// Intent is a record of dial-intents.v1. It states that a process was about to commit the fence of
// a call.
type Intent struct {
	CallRequestID, WorkspaceID, CallID, InstanceID uuid.UUID

	From, To, Trunk string
	AgentID         uuid.UUID
	ContactID       *uuid.UUID
	MaxCallSeconds  int32
	QueuedAt        *time.Time
	TimeZone        string
	ByPerson        bool
	At              time.Time
}

// ServerState contains the identity of a database server and the result of the last reconciliation.
type ServerState struct {
	// Server is the identity of the database server that ran the query.
	Server string `db:"server"`
	// Reconciled is the identity of the database server on which the last reconciliation ran. It is
	// empty before the first reconciliation and after AcceptTopic.
	Reconciled string `db:"reconciled"`
	// TopicID is the id of the topic that the last reconciliation read. It is uuid.Nil before the
	// first reconciliation.
	TopicID uuid.UUID `db:"topic_id"`
	// Now is the time on the database server.
	Now time.Time `db:"now"`
}

const serverState = `
SELECT server_identity() AS server, coalesce(r.server, '') AS reconciled,
	coalesce(r.topic_id, '00000000-0000-0000-0000-000000000000') AS topic_id, now() AS now
FROM (VALUES (true)) AS always (one) LEFT JOIN reconciled_servers r USING (one)`

// ServerState reads the identity of the database server and its last reconciliation.
func (s *Store) ServerState(ctx context.Context) (state ServerState, err error) {
	if state, err = pg.One[ServerState](ctx, s.pool, serverState, nil); err != nil {
		return state, fmt.Errorf("read server state: %w", err)
	}
	return state, nil
}

const intentPositions = `SELECT partition, next_offset FROM intent_positions`

// IntentPositions returns, for each partition of dial-intents.v1, the offset from which
// reconciliation reads.
func (s *Store) IntentPositions(ctx context.Context) (map[int32]int64, error) {
	rows, err := s.pool.Query(ctx, intentPositions)
	if err != nil {
		return nil, fmt.Errorf("read intent positions: %w", err)
	}
	positions := map[int32]int64{}
	var partition int32
	var offset int64
	_, err = pgx.ForEachRow(rows, []any{&partition, &offset}, func() error {
		positions[partition] = offset
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read intent positions: %w", err)
	}
	return positions, nil
}

const unfenced = `
SELECT i.call_id FROM unnest(@call_ids::uuid[]) i (call_id)
WHERE NOT EXISTS (SELECT FROM fences f WHERE f.call_id = i.call_id)`

// Unfenced returns those of the given calls that have no fence.
func (s *Store) Unfenced(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	found, err := pg.Values[uuid.UUID](ctx, s.pool, unfenced, pg.Args{"call_ids": ids})
	if err != nil {
		return nil, fmt.Errorf("find %d fences: %w", len(ids), err)
	}
	return found, nil
}

const lockRequest = `SELECT state FROM dial_queue WHERE call_request_id = @call_request_id FOR UPDATE`

// mayLive is true in its first column if the call of an intent may be live: the call's process has
// sent a heartbeat within the lease, and the call is not older than its longest duration. The
// second column is true if the database has a live SIP leg of the call, which its process stored
// again after the failover.
const mayLive = `
SELECT EXISTS (SELECT FROM instances i WHERE i.instance_id = @instance_id AND i.seen_at > now() - @lease::interval)
		AND @at::timestamptz + make_interval(secs => @max_call_seconds::integer) + @grace::interval > now(),
	EXISTS (SELECT FROM sip_legs l WHERE l.call_id = @call_id AND l.ended_at IS NULL)`

// restoreRequest also inserts the request, because the database can have lost it together with the
// fence. look_at gets the value that a claim would set, so that the limits count the request.
const restoreRequest = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, max_call_seconds,
	queued_at, due_at, look_at, by_person)
VALUES (@call_request_id, @workspace_id, 'dialing', @to, @agent_id, @contact_id, @max_call_seconds,
	@queued_at, now(), now() + @claim_lease::interval, @by_person)
ON CONFLICT (call_request_id) DO UPDATE SET state = 'dialing', claimed_by = NULL, held = false,
	look_at = excluded.look_at`

const restoreFence = `
INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id)
VALUES (@call_id, @call_request_id,
	(SELECT count(*) + 1 FROM fences f WHERE f.call_request_id = @call_request_id), @trunk, @instance_id)`

// restoredVersion is the version of a call that is inserted again. It must be higher than the
// versions of the events that were published before, because consumers ignore lower versions.
const restoredVersion = 1000

// restoreCall inserts nothing if another call to the same number is live in this database.
const restoreCall = `
INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, contact_id,
	variables, status, queued_at, max_call_seconds, deadline_at, owner, time_zone, ending, hangup_at, version, test)
SELECT @call_id, q.call_request_id, q.workspace_id, 'outbound', @from, q.to_e164, q.agent_id, q.contact_id,
	q.variables, 'fenced', q.queued_at, q.max_call_seconds,
	now() + make_interval(secs => q.max_call_seconds) + @grace::interval,
	CASE WHEN @alive::boolean THEN @instance_id::uuid END, @time_zone,
	CASE WHEN @alive::boolean THEN '' ELSE 'lost' END, CASE WHEN NOT @alive::boolean THEN now() END, @version,
	@trunk = '` + dialqueue.TestCarrier + `'
FROM dial_queue q WHERE q.call_request_id = @call_request_id
ON CONFLICT DO NOTHING`

// voidEarlier makes an earlier call of the request void, so that a later call can replace the
// earlier call. No phone rang for the earlier call. One of three conditions shows this:
//   - The intent of the earlier call is withdrawn.
//   - The same process dialed both calls.
//   - The later call has a live SIP leg, and the earlier call was not restored.
const voidEarlier = `
UPDATE calls c SET status = 'void', ended_at = now(), variables = NULL
WHERE c.call_request_id = @call_request_id AND c.call_id <> @call_id AND c.status = 'fenced' AND c.ended_at IS NULL
	AND (c.call_id = ANY (@withdrawn::uuid[]) OR @has_leg::boolean AND c.version < @version
		OR EXISTS (SELECT FROM fences f WHERE f.call_id = c.call_id AND f.instance_id = @instance_id))`

const failRequest = `
INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, max_call_seconds,
	queued_at, due_at, look_at, ended_at)
VALUES (@call_request_id, @workspace_id, 'failed', @to, @agent_id, @contact_id, @max_call_seconds,
	@queued_at, now(), now(), now())
ON CONFLICT (call_request_id) DO UPDATE SET state = 'failed', claimed_by = NULL, held = false,
	ended_at = now(), variables = NULL
RETURNING ended_at`

// Settled contains the results of SettleIntents.
type Settled struct {
	// Restored is the number of calls that can be live and were inserted again. Each of them belongs
	// to the process that dialed it.
	Restored int
	// Failed is the number of requests whose calls are lost. The carrier's report of the call becomes
	// the result of the request. Without a report, the result is dial_state_unknown.
	Failed int
}

// SettleIntents restores the calls of intents that have no fence in this database. It runs in one
// transaction. All intents of a request must be passed to the same call of SettleIntents.
//
// If the process that published the intent is alive, the restored call belongs to that process.
// Otherwise the call is marked as lost, and the recovery job ends the call. If another call to the
// number is live, no call is restored, and the request ends with dial_state_unknown.
//
// Only one call of a request can be live. So the intents of a request are settled in this order:
// intents with a live SIP leg, intents of other living processes, intents of dead processes.
//
// If an earlier call of the request is over, the restored call replaces the earlier call (see
// voidEarlier). withdrawn contains the calls of withdrawn intents.
//
// SettleIntents changes nothing in two cases. It returns ErrServerChanged if the database server
// has another identity. It returns ErrReconciled if the server is already reconciled.
func (s *Store) SettleIntents(
	ctx context.Context, server string, intents []Intent, withdrawn []uuid.UUID,
) (settled Settled, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		settled = Settled{}
		if err := lockReconciliation(ctx, tx, server); err != nil {
			return err
		}
		var reconciled bool
		if err := tx.QueryRow(ctx, isReconciled, pg.Args{"server": server}).Scan(&reconciled); err != nil {
			return fmt.Errorf("read the reconciled server: %w", err)
		}
		if reconciled {
			return ErrReconciled
		}
		ordered, err := s.orderIntents(ctx, tx, intents)
		if err != nil {
			return err
		}
		for _, one := range ordered {
			if err := s.settleIntent(ctx, tx, one, withdrawn, &settled); err != nil {
				return fmt.Errorf("request %s: %w", one.CallRequestID, err)
			}
		}
		return nil
	})
	if err != nil {
		return Settled{}, fmt.Errorf("settle %d intents: %w", len(intents), err)
	}
	return settled, nil
}

// openIntent is an intent whose fence is missing. alive is true if its process is alive and the
// call can be live. hasLeg is true if the call has a live SIP leg.
type openIntent struct {
	Intent
	alive, hasLeg bool
}

// orderIntents returns the intents in the order in which they are settled.
func (s *Store) orderIntents(ctx context.Context, tx pgx.Tx, intents []Intent) ([]openIntent, error) {
	ordered := make([]openIntent, len(intents))
	for n, intent := range intents {
		one := openIntent{Intent: intent}
		if err := tx.QueryRow(ctx, mayLive, s.intentArgs(intent)).Scan(&one.alive, &one.hasLeg); err != nil {
			return nil, fmt.Errorf("find the process of call %s: %w", intent.CallID, err)
		}
		ordered[n] = one
	}
	group := func(i openIntent) int {
		switch {
		case i.alive && i.hasLeg:
			return 0
		case i.alive:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(ordered, func(a, b openIntent) int { return cmp.Compare(group(a), group(b)) })
	return ordered, nil
}

const isReconciled = `SELECT EXISTS (SELECT FROM reconciled_servers WHERE server = @server)`

const reconciliationLock = `
SELECT server_identity() = @server, pg_advisory_xact_lock(hashtextextended(current_schema() || ' reconciliation', 0))`

// lockReconciliation lets only one process at a time change the state of the reconciliation. It
// returns ErrServerChanged if the database server has another identity.
func lockReconciliation(ctx context.Context, tx pgx.Tx, server string) error {
	var same bool
	if err := tx.QueryRow(ctx, reconciliationLock, pg.Args{"server": server}).Scan(&same, nil); err != nil {
		return fmt.Errorf("lock reconciliation: %w", err)
	}
	if !same {
		return ErrServerChanged
	}
	return nil
}

func (s *Store) intentArgs(i Intent) pg.Args {
	return pg.Args{
		"call_request_id": i.CallRequestID, "workspace_id": i.WorkspaceID, "call_id": i.CallID, "to": i.To, "from": i.From,
		"agent_id": i.AgentID, "contact_id": i.ContactID, "max_call_seconds": i.MaxCallSeconds, "queued_at": i.QueuedAt,
		"trunk": i.Trunk, "instance_id": i.InstanceID, "time_zone": i.TimeZone, "by_person": i.ByPerson,
		"at": i.At, "lease": s.timing.InstanceLease,
		"claim_lease": s.timing.ClaimLease, "version": restoredVersion,
		"grace": s.timing.RingLimit + s.timing.WatchdogGrace,
	}
}

func (s *Store) settleIntent(
	ctx context.Context, tx pgx.Tx, i openIntent, withdrawn []uuid.UUID, settled *Settled,
) error {
	args := s.intentArgs(i.Intent)
	args["alive"], args["has_leg"], args["withdrawn"] = i.alive, i.hasLeg, withdrawn
	state, err := pg.Value[dialqueue.State](ctx, tx, lockRequest, args)
	if err != nil && !errors.Is(err, pg.ErrNotFound) {
		return fmt.Errorf("lock request: %w", err)
	}
	if err == nil && state != dialqueue.Queued {
		voided, err := tx.Exec(ctx, voidEarlier, args)
		if err != nil {
			return fmt.Errorf("void earlier call: %w", err)
		}
		if voided.RowsAffected() == 0 {
			return nil
		}
	}
	restored, err := restoreLostCall(ctx, tx, args)
	switch {
	case err != nil:
		return err
	case restored && i.alive:
		settled.Restored++
		return nil
	case restored:
		settled.Failed++
		return nil
	}
	var at time.Time
	if err := tx.QueryRow(ctx, failRequest, args).Scan(&at); err != nil {
		return fmt.Errorf("end request: %w", err)
	}
	settled.Failed++
	// The lost call gets no row. Its event `ended` is published for consumers that received earlier
	// events of the call.
	lost := &callstate.Call{
		CallID: i.CallID, CallRequestID: &i.CallRequestID, WorkspaceID: i.WorkspaceID, Direction: callstate.Outbound,
		From: i.From, To: i.To, AgentID: i.AgentID, ContactID: i.ContactID, QueuedAt: i.QueuedAt, Status: callstate.Fenced,
		Ending: callstate.EndingLost, Version: restoredVersion,
	}
	lost.End(callstate.EndingLost.Unheard(at))
	return outbox.Put(ctx, tx, outboxEvents(lost.Facts()...)...)
}

// restoreLostCall inserts a call that is marked as lost. It returns false if another call to the
// number is live, because only one live call to a number is permitted.
func restoreLostCall(ctx context.Context, tx pgx.Tx, args pg.Args) (bool, error) {
	if _, err := tx.Exec(ctx, restoreRequest, args); err != nil {
		return false, fmt.Errorf("restore request: %w", err)
	}
	inserted, err := tx.Exec(ctx, restoreCall, args)
	if err != nil {
		return false, fmt.Errorf("restore call: %w", err)
	}
	if inserted.RowsAffected() == 0 {
		return false, nil
	}
	if _, err := tx.Exec(ctx, restoreFence, args); err != nil {
		return false, fmt.Errorf("restore fence: %w", err)
	}
	return true, nil
}

// On the first server of a database no events can be missing. So Sweep need not wait after its
// reconciliation, and reconciled_at is -infinity.
const setReconciled = `
INSERT INTO reconciled_servers (server, topic_id, reconciled_at) VALUES (@server, @topic_id, '-infinity')
ON CONFLICT (one) DO UPDATE SET server = excluded.server, topic_id = excluded.topic_id, reconciled_at = now()`

const deletePositions = `DELETE FROM intent_positions`

// setPositions may also store a lower offset than before. The next reconciliation then reads some
// intents a second time, which is harmless.
const setPositions = `
INSERT INTO intent_positions (partition, next_offset)
SELECT p.partition, p.next_offset FROM unnest(@partitions::integer[], @offsets::bigint[]) p (partition, next_offset)
ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset`

// SetReconciled stores that the database server with the given identity was reconciled with the
// topic up to the offsets. If the statement runs on another server, SetReconciled returns
// ErrServerChanged and changes nothing.
func (s *Store) SetReconciled(ctx context.Context, server string, topicID uuid.UUID, offsets map[int32]int64) error {
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if err := lockReconciliation(ctx, tx, server); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, setReconciled, pg.Args{"server": server, "topic_id": topicID}); err != nil {
			return err
		}
		return putPositions(ctx, tx, offsets)
	})
	if err != nil {
		return fmt.Errorf("record reconciliation: %w", err)
	}
	return nil
}

func putPositions(ctx context.Context, tx pgx.Tx, offsets map[int32]int64) error {
	var partitions []int32
	var next []int64
	for partition, offset := range offsets {
		partitions, next = append(partitions, partition), append(next, offset)
	}
	_, err := tx.Exec(ctx, setPositions, pg.Args{"partitions": partitions, "offsets": next})
	return err
}

// mayFence is true if an intent published before @since can still lead to a fence. This is so while
// a request that was claimed before @since is queued. It is also so while a call that was fenced
// before @since does not ring: a trunk can refuse it, and the next attempt gets another fence.
const mayFence = `
SELECT EXISTS (SELECT FROM dial_queue q WHERE q.state = 'queued' AND q.claimed_by IS NOT NULL
		AND q.look_at > now() - interval '1 minute' AND q.look_at <= @since::timestamptz + @lease::interval)
	OR EXISTS (SELECT FROM calls c JOIN fences f USING (call_id)
		WHERE c.ended_at IS NULL AND c.status = 'fenced' AND c.ending IN ('', 'requested')
			AND f.fenced_at <= @since::timestamptz)`

// AdvanceIntents stores end offsets of the topic as the new positions. endReadAt is the database's
// time after the caller read these offsets. AdvanceIntents changes nothing and returns false if a
// request that was claimed or dialed before endReadAt can still get a fence. The intent of that
// fence can be below the new positions, and a later reconciliation must read it.
func (s *Store) AdvanceIntents(
	ctx context.Context, server string, topicID uuid.UUID, endReadAt time.Time, ends map[int32]int64,
) (moved bool, err error) {
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		moved = false
		if err := lockReconciliation(ctx, tx, server); err != nil {
			return err
		}
		var open bool
		args := pg.Args{"since": endReadAt, "lease": s.timing.ClaimLease}
		if err := tx.QueryRow(ctx, mayFence, args).Scan(&open); err != nil || open {
			return err
		}
		moved = true
		var before uuid.UUID
		if err := tx.QueryRow(ctx, `SELECT topic_id FROM reconciled_servers`).Scan(&before); err != nil {
			return err
		}
		if before != topicID {
			return replaceTopic(ctx, tx, server, topicID, ends)
		}
		return putPositions(ctx, tx, ends)
	})
	if err != nil {
		return false, fmt.Errorf("advance intent positions: %w", err)
	}
	return moved, nil
}

func replaceTopic(ctx context.Context, tx pgx.Tx, server string, topicID uuid.UUID, offsets map[int32]int64) error {
	if _, err := tx.Exec(ctx, setReconciled, pg.Args{"server": server, "topic_id": topicID}); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, deletePositions); err != nil {
		return err
	}
	return putPositions(ctx, tx, offsets)
}

// AcceptTopic makes the next reconciliation read the topic from the given offsets. Requests whose
// intents the topic no longer contains can be dialed twice, so only an operator may call
// AcceptTopic.
func (s *Store) AcceptTopic(ctx context.Context, topicID uuid.UUID, starts map[int32]int64) error {
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		return replaceTopic(ctx, tx, "", topicID, starts)
	})
	if err != nil {
		return fmt.Errorf("accept topic: %w", err)
	}
	return nil
}

const ownFences = `
SELECT call_id FROM calls
WHERE owner = @instance AND ended_at IS NULL AND status = 'fenced' AND ending IN ('', 'requested') AND ` + onServer + `
	AND (@test::boolean IS NULL OR test = @test)`

// OwnFences returns the calls of this process that have a committed fence and have not ended. On a
// database server that was not set with UseServer it returns none, because that server can lack a
// later call of the same request.
func (s *Store) OwnFences(ctx context.Context) ([]uuid.UUID, error) {
	ids, err := pg.Values[uuid.UUID](ctx, s.pool, ownFences, pg.Args{
		"instance": s.instance, "server": s.server(), "test": s.modes.Test(),
	})
	if err != nil {
		return nil, fmt.Errorf("list fenced calls: %w", err)
	}
	return ids, nil
}
