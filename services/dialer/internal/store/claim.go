package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/crash"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/room"
	"ringfence.dev/services/dialer/internal/tenant"
)

const (
	// steps is how many workspaces one claim looks at; the next one goes on behind them.
	steps = 64
	// spare is how many requests beyond its share a claim looks at, for those that cannot be taken.
	spare = 16
	// come is how many requests whose time has come one claim makes ready; more than that is done by workspaces in turn, so that the many of one do not
	// stand before the one of another.
	come, comeEach, comeSteps = 256, 16, 128
	// late is from when on a request that has not been dialled is late: what is promised. A workspace not seen at its own limits for as long is not at them.
	late = 5 * time.Second
)

// Room is what a claim may take, on one trunk.
type Room struct {
	Hands room.Hands
	Trunk string
	// OfTrunk is zero while no trunk can take a call. The claim then takes only requests that must be blocked, and
	// does not count the others as crowded out: a trunk that is down is no lack of capacity.
	OfTrunk room.Limit
	Overall room.Limit
}

// Claimed is what a claim took, and when another is worth while.
type Claimed struct {
	Requests []request.Request
	// More: the round goes on, or time has come for more than one claim makes ready. Another claim finds what this one did not come to.
	More bool
	// Crowded: due work was left. Wait is how long until pace allows it; zero when it does not hang on pace alone.
	Crowded bool
	Wait    time.Duration
}

// claimLock makes claims of all replicas take turns, so that limits hold over all of them. A process that stops in its tracks meanwhile loses it with its
// connection after two seconds. The statements are planned once a connection, perhaps while the queue is empty: by index, whatever its size.
const claimLock = `
SELECT set_config('idle_in_transaction_session_timeout', '2000', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
	pg_advisory_xact_lock(hashtext(current_schema() || ' claim'))`

// All slots are counted, so they are read as they lie.
const (
	readAll     = `SELECT set_config('enable_seqscan', 'on', true)`
	readByIndex = `SELECT set_config('enable_seqscan', 'off', true)`
)

// The workspaces that have due work, found by skipping from one to the next behind the one that had the last turn, once around at most.
const dueWorkspaces = `
WITH RECURSIVE turn AS MATERIALIZED (
	SELECT coalesce((SELECT t.workspace_id FROM turns t WHERE t.round = 'claim'), '00000000-0000-0000-0000-000000000000') AS last
), hop AS (
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND q.ready AND q.workspace_id > turn.last
		ORDER BY q.workspace_id LIMIT 1) AS workspace_id, 1 AS step FROM turn
	UNION ALL
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND q.ready AND q.workspace_id > hop.workspace_id
		ORDER BY q.workspace_id LIMIT 1), hop.step + 1
	FROM hop WHERE hop.workspace_id IS NOT NULL AND hop.step < @steps::integer
), again AS (
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND q.ready ORDER BY q.workspace_id LIMIT 1) AS workspace_id, 1 AS step
	UNION ALL
	SELECT (SELECT q.workspace_id FROM dial_queue q WHERE q.state = 'queued' AND q.ready AND q.workspace_id > again.workspace_id
		ORDER BY q.workspace_id LIMIT 1), again.step + 1
	FROM again, turn WHERE again.workspace_id < turn.last AND again.step < @steps
), due AS MATERIALIZED (
	SELECT visited.workspace_id, visited.pass FROM (
		SELECT hop.workspace_id, 0 AS pass FROM hop
		UNION ALL
		SELECT again.workspace_id, 1 FROM again, turn WHERE again.workspace_id <= turn.last
	) visited WHERE visited.workspace_id IS NOT NULL ORDER BY visited.pass, visited.workspace_id LIMIT @steps
), taken AS MATERIALIZED (
	SELECT count(*) AS overall, count(*) FILTER (WHERE s.trunk = @trunk) AS of_trunk FROM slots s WHERE EXISTS (SELECT 1 FROM due)
)
SELECT due.workspace_id, coalesce(w.status <> 'active' OR NOT w.api_enabled, false) AS barred,
	coalesce(w.calls_per_second, @calls_per_second) AS calls_per_second, coalesce(w.max_live_calls, @max_live) AS max_live_calls,
	extract(epoch FROM now() - p.paced_until)::float8 AS rested,
	coalesce(p.crowded_at > now() - interval '10 seconds', false) AS crowded_lately,
	CASE WHEN p.own_seen > now() - @late::interval THEN p.own_since END AS own_since,
	coalesce(p.own_seen > now() - interval '1 second', false) AS own_noted,
	(SELECT count(*) FROM (SELECT 1 FROM dial_queue q WHERE q.workspace_id = due.workspace_id AND q.state = 'queued' AND q.ready
		AND q.look_at <= now() ORDER BY q.look_at LIMIT @hands) waiting) AS waiting,
	(SELECT count(*) FROM slots s WHERE s.workspace_id = due.workspace_id) AS taken,
	taken.overall AS taken_overall, taken.of_trunk AS taken_of_trunk, due.pass
FROM due CROSS JOIN taken
LEFT JOIN workspaces w ON w.workspace_id = due.workspace_id
LEFT JOIN paces p ON p.workspace_id = due.workspace_id
ORDER BY due.pass, due.workspace_id`

// dueWorkspace is a workspace with due work, and what is taken of everything.
type dueWorkspace struct {
	WorkspaceID    uuid.UUID `db:"workspace_id"`
	Barred         bool      `db:"barred"`
	CallsPerSecond int32     `db:"calls_per_second"`
	MaxLiveCalls   int32     `db:"max_live_calls"`
	Rested         *float64  `db:"rested"`
	CrowdedLately  bool      `db:"crowded_lately"`
	// OwnSince is since when it has been at its own limits, nil when it is not. OwnNoted: that was written down in the last second.
	OwnSince     *time.Time `db:"own_since"`
	OwnNoted     bool       `db:"own_noted"`
	Waiting      int        `db:"waiting"`
	Taken        int        `db:"taken"`
	TakenOverall int        `db:"taken_overall"`
	TakenOfTrunk int        `db:"taken_of_trunk"`
	// Pass is 1 for those met after the round began anew.
	Pass int `db:"pass"`
}

// heldBack says that the workspace is at its own limits, and was before the request was late: what waited for us first stays ours, however long it then takes to be
// dialled at the workspace's pace.
func (w dueWorkspace) heldBack(r request.Request) bool {
	return w.OwnSince != nil && w.OwnSince.Sub(r.DueAt) <= late
}

const sharedPaces = `
SELECT scope, extract(epoch FROM now() - paced_until)::float8 AS rested, extract(epoch FROM now() - crowd_until)::float8 AS crowd_rested
FROM shared_paces WHERE scope = ANY (@scopes)`

type sharedPace struct {
	Scope       string  `db:"scope"`
	Rested      float64 `db:"rested"`
	CrowdRested float64 `db:"crowd_rested"`
}

// overall is the scope of all trunks together; a trunk's scope is its name behind the prefix.
const (
	overall     = "overall"
	trunkPrefix = "trunk "
)

// A request whose number is in a call waits until that call ends. One whose number is being dialled waits a moment, and
// one beyond the age limit waits until it is ended.
//
// A request that is not due is taken only to be blocked: its workspace may not dial, or its agent is deleted.
// Otherwise a suspension that has ended made it ready, and it waits until it is due.
//
// The lock on the call makes the call's end wait, so that it finds the request. A call that is changing just now is
// looked at by the next claim. coalesce keeps the planner from using the partial indexes where the id identifies the
// row.
const claim = `
WITH oldest AS MATERIALIZED (
	SELECT q.call_request_id, q.to_e164, q.look_at, q.due_at, q.due_at < now() - @queue_limit::interval AS expired,
		CASE WHEN q.due_at <= now() OR @barred::boolean THEN false
			ELSE NOT coalesce((SELECT a.deleted FROM agents a WHERE a.agent_id = q.agent_id), false) END AS early,
		(SELECT c.call_id FROM calls c WHERE c.workspace_id = @workspace_id AND c.to_e164 = q.to_e164 AND c.ended_at IS NULL
			AND c.direction = 'outbound' ORDER BY c.to_e164 LIMIT 1) AS call_id,
		(SELECT true FROM dial_queue c WHERE c.workspace_id = @workspace_id AND c.to_e164 = q.to_e164
			AND c.state = 'queued' AND c.claimed_by IS NOT NULL AND c.look_at > now() ORDER BY c.to_e164 LIMIT 1) AS behind
	FROM dial_queue q
	WHERE q.workspace_id = @workspace_id AND q.state = 'queued' AND q.ready AND q.look_at <= now()
	ORDER BY q.look_at LIMIT @most::bigint + @spare
), judged AS MATERIALIZED (
	SELECT o.call_request_id, o.look_at, o.due_at, o.expired, o.early, o.call_id, coalesce(o.behind, false)
		OR row_number() OVER (PARTITION BY o.to_e164 ORDER BY o.look_at, o.call_request_id) > 1 AS behind
	FROM oldest o
), apart AS MATERIALIZED (
	SELECT j.call_request_id, false AS held, now() + CASE WHEN j.expired THEN interval '1 minute' ELSE interval '250 milliseconds' END AS look_at
	FROM judged j WHERE NOT j.early AND (j.expired OR j.call_id IS NULL AND j.behind)
	UNION ALL
	SELECT j.call_request_id, false, j.due_at FROM judged j WHERE j.early
	UNION ALL
	SELECT j.call_request_id, true, greatest(live.deadline_at, now() + interval '1 second')
	FROM judged j, LATERAL (SELECT c.deadline_at FROM calls c WHERE c.call_id = j.call_id AND coalesce(c.ended_at, 'infinity') = 'infinity'
		FOR SHARE SKIP LOCKED) live
	WHERE NOT j.expired AND NOT j.early
), aside AS (
	UPDATE dial_queue q SET ready = false, held = (SELECT a.held FROM apart a WHERE a.call_request_id = q.call_request_id),
		look_at = (SELECT a.look_at FROM apart a WHERE a.call_request_id = q.call_request_id)
	WHERE q.call_request_id = ANY (ARRAY(SELECT l.call_request_id FROM dial_queue l
		WHERE l.call_request_id = ANY (ARRAY(SELECT a.call_request_id FROM apart a))
			AND coalesce(l.state, '') = 'queued' AND coalesce(l.ready, false) FOR UPDATE SKIP LOCKED))
), taken AS MATERIALIZED (
	SELECT l.call_request_id FROM dial_queue l
	WHERE l.call_request_id = ANY (ARRAY(SELECT j.call_request_id FROM judged j
			WHERE NOT j.expired AND NOT j.early AND j.call_id IS NULL AND NOT j.behind
			ORDER BY j.look_at LIMIT @most::bigint))
		AND coalesce(l.state, '') = 'queued' AND coalesce(l.ready, false) FOR UPDATE SKIP LOCKED
), slot AS (
	INSERT INTO slots (call_request_id, workspace_id, trunk) SELECT t.call_request_id, @workspace_id, @trunk FROM taken t
	ON CONFLICT (call_request_id) DO UPDATE SET trunk = EXCLUDED.trunk
)
UPDATE dial_queue SET claimed_by = @instance, ready = false, look_at = now() + @lease::interval
WHERE call_request_id = ANY (ARRAY(SELECT t.call_request_id FROM taken t))
RETURNING call_request_id, workspace_id, to_e164, agent_id, contact_id, variables, schedule_if_outside_hours,
	max_call_seconds, queued_at, due_at, looks, traceparent`

const pace = `
INSERT INTO paces (workspace_id, paced_until, crowded_at, own_since, own_seen)
SELECT p.workspace_id, now() - make_interval(secs => p.behind), CASE WHEN p.crowded THEN now() END, CASE WHEN p.own THEN now() END, CASE WHEN p.own THEN now() END
FROM unnest(@ids::uuid[], @behind::float8[], @crowded::boolean[], @own::boolean[]) p (workspace_id, behind, crowded, own)
ON CONFLICT (workspace_id) DO UPDATE SET paced_until = EXCLUDED.paced_until, crowded_at = coalesce(EXCLUDED.crowded_at, paces.crowded_at),
	own_since = CASE WHEN paces.own_seen > now() - @late::interval THEN paces.own_since ELSE EXCLUDED.own_since END,
	own_seen = coalesce(EXCLUDED.own_seen, paces.own_seen)`

const paceShared = `
INSERT INTO shared_paces (scope, paced_until, crowd_until)
SELECT p.scope, now() - make_interval(secs => p.behind), now() - make_interval(secs => p.crowd_behind)
FROM unnest(@scopes::text[], @behind::float8[], @crowd_behind::float8[]) p (scope, behind, crowd_behind)
ON CONFLICT (scope) DO UPDATE SET paced_until = EXCLUDED.paced_until, crowd_until = EXCLUDED.crowd_until`

const takeTurn = `
INSERT INTO turns (round, workspace_id) VALUES ('claim', @workspace_id)
ON CONFLICT (round) DO UPDATE SET workspace_id = EXCLUDED.workspace_id`

// Claim takes due requests for this process, the workspaces in turn, within every limit; each takes a slot. They are ours for the claim lease; what has
// not left the queue by then is anybody's again, and its slot is given back.
func (s *Store) Claim(ctx context.Context, r Room) (claimed Claimed, err error) {
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		claimed = Claimed{}
		backlog, due, scopes, err := s.standing(ctx, tx, r)
		if err != nil {
			return err
		}
		if backlog {
			tx.Later(comeInTurn, pg.Args{"each": comeEach, "steps": comeSteps}, nil)
		}
		queues := make([]room.Queue, len(due))
		for i, w := range due {
			queues[i] = room.Queue{
				WorkspaceID: w.WorkspaceID, Barred: w.Barred, Waiting: w.Waiting, Taken: w.Taken, MaxLive: int(w.MaxLiveCalls),
				Pace: room.Pace{Rate: float64(w.CallsPerSecond), Rested: w.Rested},
			}
		}
		dealt := room.Deal(scopes, r.Hands, queues)
		taken := make([]int, len(due))
		if err := s.take(ctx, tx, r.Trunk, due, dealt.Shares, taken, &claimed.Requests); err != nil {
			return err
		}
		claimed.More = backlog || len(due) == steps && due[steps-1].Pass == 0
		claimed.Crowded, claimed.Wait = len(due) > 0, dealt.Wait
		s.account(tx, r, scopes, due, queues, dealt, taken)
		if len(claimed.Requests) > 0 {
			crash.Point("dialer: in claim, before commit")
		}
		return nil
	})
	if err != nil {
		return Claimed{}, fmt.Errorf("claim due requests: %w", err)
	}
	return claimed, nil
}

// standing locks out other claims, makes ready whose time has come, and reads who waits and what is taken, in one round trip. backlog says that more time
// has come than was made ready.
func (s *Store) standing(ctx context.Context, tx *pg.Pipeline, r Room) (backlog bool, due []dueWorkspace, scopes []room.Scope, err error) {
	var batch pgx.Batch
	batch.Queue(claimLock)
	var ready int
	batch.Queue(comeOldest, pg.Args{"most": come}).QueryRow(func(row pgx.Row) error { return row.Scan(&ready) })
	paces := map[string]sharedPace{}
	batch.Queue(sharedPaces, pg.Args{"scopes": []string{overall, trunkPrefix + r.Trunk}}).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[sharedPace])
		for _, p := range found {
			paces[p.Scope] = p
		}
		return err
	})
	batch.Queue(readAll)
	batch.Queue(dueWorkspaces, pg.Args{
		"steps": steps, "hands": r.Hands.Free, "trunk": r.Trunk, "late": late,
		"calls_per_second": tenant.DefaultCallsPerSecond, "max_live": tenant.DefaultMaxLiveCalls,
	}).Query(func(rows pgx.Rows) (err error) {
		due, err = pgx.CollectRows(rows, pgx.RowToStructByName[dueWorkspace])
		return err
	})
	if err := tx.Ask(ctx, &batch); err != nil {
		return false, nil, nil, err
	}
	scope := func(name string, limit room.Limit) room.Scope {
		s := room.Scope{Limit: limit, All: room.Pace{Rate: float64(limit.PerSecond)}, Crowd: room.Pace{Rate: limit.CrowdRate()}}
		if p, ok := paces[name]; ok {
			s.All.Rested, s.Crowd.Rested = &p.Rested, &p.CrowdRested
		}
		return s
	}
	scopes = []room.Scope{scope(overall, r.Overall), scope(trunkPrefix+r.Trunk, r.OfTrunk)}
	if len(due) > 0 {
		scopes[0].Taken, scopes[1].Taken = due[0].TakenOverall, due[0].TakenOfTrunk
	}
	return ready == come, due, scopes, nil
}

// take claims the shares of the queues in one round trip and counts in taken what there was.
func (s *Store) take(ctx context.Context, tx *pg.Pipeline, trunk string, due []dueWorkspace, shares, taken []int, requests *[]request.Request) error {
	var batch pgx.Batch
	batch.Queue(readByIndex)
	for i, share := range shares {
		if share == 0 {
			continue
		}
		batch.Queue(claim, pg.Args{
			"instance": s.instance, "lease": s.timing.ClaimLease, "queue_limit": s.timing.QueueLimit, "trunk": trunk,
			"workspace_id": due[i].WorkspaceID, "most": share, "spare": spare, "barred": due[i].Barred,
		}).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowToStructByName[request.Request])
			taken[i] = len(found)
			for j := range found {
				found[j].HeldBack = due[i].heldBack(found[j])
			}
			*requests = append(*requests, found...)
			return err
		})
	}
	if batch.Len() == 1 {
		return nil
	}
	return tx.Ask(ctx, &batch)
}

// account writes down, with the commit, what was taken of every pace, who found no room, and whose turn it was.
func (s *Store) account(
	tx *pg.Pipeline, r Room, scopes []room.Scope, due []dueWorkspace, queues []room.Queue, dealt room.Dealt, taken []int,
) {
	var ids []uuid.UUID
	var behind []float64
	var crowded, own []bool
	all := 0
	for i, q := range queues {
		paced := taken[i]
		if q.Barred {
			paced = 0
		}
		all += paced
		noRoom := dealt.Crowded[i] && !q.Barred && !due[i].CrowdedLately && r.OfTrunk.Live > 0
		spent := dealt.Own[i] && !due[i].OwnNoted
		if paced > 0 || noRoom || spent {
			ids, behind = append(ids, q.WorkspaceID), append(behind, q.Pace.Behind(paced))
			crowded, own = append(crowded, noRoom), append(own, spent)
		}
	}
	if len(ids) > 0 {
		tx.Later(pace, pg.Args{"ids": ids, "behind": behind, "crowded": crowded, "own": own, "late": late}, nil)
	}
	if all > 0 {
		tx.Later(paceShared, pg.Args{
			"scopes":       []string{overall, trunkPrefix + r.Trunk},
			"behind":       []float64{scopes[0].All.Behind(all), scopes[1].All.Behind(all)},
			"crowd_behind": []float64{scopes[0].Crowd.Behind(all), scopes[1].Crowd.Behind(all)},
		}, nil)
	}
	last := dealt.Last
	if last < 0 && len(due) == steps {
		last = len(due) - 1
	}
	if last >= 0 {
		tx.Later(takeTurn, pg.Args{"workspace_id": due[last].WorkspaceID}, nil)
	}
}

const nextLook = `
SELECT EXISTS (SELECT 1 FROM dial_queue WHERE state = 'queued' AND ready) AS due,
	(SELECT extract(epoch FROM look_at - now())::float8 FROM dial_queue WHERE state = 'queued' AND NOT ready ORDER BY look_at LIMIT 1) AS wait`

// NextLook is how long until the next request is due; zero or less when one is due now, ok false when none waits. It takes no lock.
func (s *Store) NextLook(ctx context.Context) (wait time.Duration, ok bool, err error) {
	var due bool
	var seconds *float64
	if err := s.pool.QueryRow(ctx, nextLook).Scan(&due, &seconds); err != nil {
		return 0, false, fmt.Errorf("read next due request: %w", err)
	}
	switch {
	case due:
		return 0, true, nil
	case seconds == nil:
		return 0, false, nil
	}
	return time.Duration(math.Min(*seconds, 3600) * float64(time.Second)), true, nil
}
