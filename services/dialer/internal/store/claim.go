package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

const (
	// extraRequests is how many requests a claim reads in addition to the number that the workspace
	// may start. Some of the requests that it reads cannot be claimed.
	extraRequests = 16
	// lateAfter is the time after which a due request counts as late.
	lateAfter = 5 * time.Second
	// longestClaimDelay is the longest time after the end of a claim at which its fence can still
	// commit. Until then, the limits count the request as in use.
	longestClaimDelay = 2 * time.Second
	// Due also returns workspaces with requests that will be due within dueAhead.
	dueAhead = 2 * time.Second
)

// Capacity is the capacity that one claim may use.
type Capacity struct {
	Workers dialqueue.Workers
	// Trunk is the name of the carrier. OfTrunk is zero while no trunk can take a call. A claim then
	// takes only requests that must be blocked, and does not record that the other requests lacked
	// capacity.
	Trunk   string
	OfTrunk dialqueue.Limit
	Total   dialqueue.Limit
	// Unused contains, for each workspace, the tokens that earlier claims took for requests without a
	// dial. The claim returns these tokens to the buckets.
	Unused map[uuid.UUID]int
}

// Claimed is the result of a claim.
type Claimed struct {
	Requests []dialqueue.Request
	// Last is the index of the last workspace to which a request was allocated, or -1 if there is
	// none.
	Last int
	// Drained contains the workspaces that have no more due requests. The value is the time until
	// their next request is due, or 0 if none is due within two seconds.
	Drained map[uuid.UUID]time.Duration
	// Left is true if the claim left due requests in the queue. Wait is the time until a token permits
	// another request, or zero if no token is missing.
	Left bool
	Wait time.Duration
}

// requestsOfKeysDue is an SQL condition. It is true if requests of API keys of the workspace w are
// due. If the plan has no API access, these requests must be blocked, but requests of people are
// dialed.
const requestsOfKeysDue = `EXISTS (SELECT FROM dial_queue k
	WHERE k.workspace_id = w.workspace_id AND k.state = 'queued' AND NOT k.by_person AND k.look_at <= now())`

const dueWorkspaces = `
SELECT w.workspace_id, extract(epoch FROM q.look_at - now())::float8 AS seconds
FROM workspaces w
LEFT JOIN LATERAL (SELECT b.scan_from FROM rate_buckets b WHERE b.scope = w.workspace_id::text
	ORDER BY b.version DESC LIMIT 1) b ON true
CROSS JOIN LATERAL (SELECT q.look_at FROM dial_queue q
	WHERE q.workspace_id = w.workspace_id AND q.state = 'queued' AND q.look_at >= coalesce(b.scan_from, '-infinity')
	ORDER BY q.look_at LIMIT 1) q
WHERE q.look_at <= now() + @ahead::interval AND (@test::boolean IS NULL OR w.test = @test)
	AND (w.status <> 'active' OR NOT w.api_enabled AND ` + requestsOfKeysDue + `
		OR NOT (` + allPaused + ` OR w.workspace_id IN ` + pausedWorkspaces + `))`

// Due returns the workspaces with a queued request that is due now or within two seconds. It locks
// no rows. It omits paused workspaces and workspaces that are not known yet.
//
// Due returns a paused workspace if requests must be blocked: the workspace is not active, or its
// plan has no API access and a request of an API key is due.
func (s *Store) Due(ctx context.Context) ([]dialqueue.Due, error) {
	var found []dialqueue.Due
	// The settings of byIndex end with the transaction. So both statements must run in one
	// transaction.
	var batch pgx.Batch
	batch.Queue(byIndex)
	batch.Queue(dueWorkspaces, pg.Args{"ahead": dueAhead, "test": s.modes.Test()}).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var wait float64
		_, err := pgx.ForEachRow(rows, []any{&id, &wait}, func() error {
			found = append(found, dialqueue.Due{WorkspaceID: id, Wait: seconds(wait)})
			return nil
		})
		return err
	})
	err := s.pool.SendBatch(ctx, &batch).Close()
	if err != nil {
		return nil, fmt.Errorf("find workspaces with due requests: %w", err)
	}
	return found, nil
}

const (
	// byIndex makes the planner use indexes. A connection can plan the statements of this file while
	// the tables are empty or not analyzed, and it keeps these plans while the tables grow.
	byIndex = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_sort', 'off', true),
	set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)`
	// lockClaims lets only one claim of all replicas run at a time, so that no limit is exceeded. If a
	// process halts during a claim, the database server closes its connection after two seconds, which
	// frees the lock.
	lockClaims = `
SELECT set_config('idle_in_transaction_session_timeout', '2000', true),
	pg_advisory_xact_lock(hashtext(current_schema() || ' claim'))`
)

const readBuckets = `
SELECT s.scope, b.version, b.tokens, extract(epoch FROM now() - b.refilled_at)::float8 AS filled_for
FROM unnest(@scopes::text[]) AS s (scope)
CROSS JOIN LATERAL (SELECT * FROM rate_buckets b WHERE b.scope = s.scope ORDER BY b.version DESC LIMIT 1) b`

type bucketRow struct {
	Scope     string  `db:"scope"`
	Version   int64   `db:"version"`
	Tokens    float64 `db:"tokens"`
	FilledFor float64 `db:"filled_for"`
}

// countInUse counts the requests that are claimed or in a call. It also counts a claim for
// longestClaimDelay after its end, because the fence of the claim can still commit.
const countInUse = `
SELECT u.workspace_id, u.in_use, u.first, @test::boolean IS NULL
	OR coalesce((SELECT w.test FROM workspaces w WHERE w.workspace_id = u.workspace_id), false) = @test AS same_carrier
FROM (SELECT q.workspace_id, count(*) AS in_use, min(q.look_at) AS first
FROM dial_queue q
WHERE (q.state = 'dialing' OR q.state = 'queued' AND q.claimed_by IS NOT NULL)
	AND q.look_at >= coalesce((SELECT b.scan_from FROM rate_buckets b WHERE b.scope = @total
		ORDER BY b.version DESC LIMIT 1), '-infinity')
	AND (q.state = 'dialing' OR q.look_at > now() - @delay::interval)
GROUP BY q.workspace_id) u`

// isCounted selects the rows that the limits count. MoveLongCalls regularly sets counted_at of live
// legs and live inbound calls to the current time. So rows with an older counted_at have ended, and
// a count can skip their index entries.
const isCounted = `counted_at > now() - interval '10 minutes'`

// countInbound counts inbound calls, because they use channels of the trunks. The ORDER BY makes
// the planner use the index on counted_at.
const countInbound = `
SELECT count(*) FROM (SELECT FROM calls WHERE ended_at IS NULL AND direction = 'inbound' AND ` + isCounted + `
	AND (@test::boolean IS NULL OR test = @test)
	ORDER BY counted_at LIMIT @most::bigint) AS bounded`

const readWorkspaces = `
SELECT w.workspace_id, coalesce(c.status <> 'active', false) AS suspended,
	coalesce(NOT c.api_enabled AND ` + requestsOfKeysDue + `, false) AS keys_barred,
	` + allPaused + ` OR w.workspace_id IN ` + pausedWorkspaces + ` AS paused,
	coalesce(c.calls_per_second, @calls_per_second) AS calls_per_second,
	coalesce(c.max_live_calls, @max_live) AS max_live_calls,
	coalesce(b.version, 0) AS version, b.tokens,
	coalesce(extract(epoch FROM now() - b.refilled_at), 0)::float8 AS filled_for,
	extract(epoch FROM now() - b.claimed_at)::float8 AS since_claim, b.scan_from,
	coalesce(b.no_capacity_at > now() - interval '10 seconds', false) AS no_capacity_lately,
	CASE WHEN b.own_limit_seen > now() - @late::interval THEN b.own_limit_since END AS own_limit_since,
	coalesce(b.own_limit_seen > now() - interval '1 second', false) AS own_limit_noted,
	q.waiting, q.first,
	coalesce((SELECT extract(epoch FROM n.look_at - now()) FROM dial_queue n
		WHERE n.workspace_id = w.workspace_id AND n.state = 'queued' AND n.look_at > now() AND n.look_at < now() +
			@ahead::interval
		ORDER BY n.look_at LIMIT 1), 0)::float8 AS next
FROM unnest(@workspaces::uuid[]) WITH ORDINALITY AS w (workspace_id, place)
LEFT JOIN workspaces c ON c.workspace_id = w.workspace_id
LEFT JOIN LATERAL (SELECT * FROM rate_buckets b WHERE b.scope = w.workspace_id::text
	ORDER BY b.version DESC LIMIT 1) b ON true
CROSS JOIN LATERAL (SELECT count(*) AS waiting, min(f.look_at) AS first FROM (
	SELECT q.look_at FROM dial_queue q
	WHERE q.workspace_id = w.workspace_id AND q.state = 'queued'
		AND q.look_at >= coalesce(b.scan_from, '-infinity') AND q.look_at <= now()
	ORDER BY q.look_at LIMIT @workers::bigint) f) q
ORDER BY w.place`

type workspaceRow struct {
	WorkspaceID uuid.UUID `db:"workspace_id"`
	Suspended   bool      `db:"suspended"`
	// KeysBarred is true if requests of API keys are due and the plan has no API access.
	KeysBarred     bool  `db:"keys_barred"`
	Paused         bool  `db:"paused"`
	CallsPerSecond int32 `db:"calls_per_second"`
	MaxLiveCalls   int32 `db:"max_live_calls"`
	// Version is the version of the workspace's bucket, or 0 if the workspace has no bucket.
	Version    int64      `db:"version"`
	Tokens     *float64   `db:"tokens"`
	FilledFor  float64    `db:"filled_for"`
	SinceClaim *float64   `db:"since_claim"`
	ScanFrom   *time.Time `db:"scan_from"`
	// NoCapacityLately is true if, in the last ten seconds, a claim left requests of the workspace
	// because no capacity was free.
	NoCapacityLately bool `db:"no_capacity_lately"`
	// OwnLimitSince is the time at which the workspace reached its own limits. It is nil if the
	// workspace is below its limits. OwnLimitNoted is true if a claim stored this within the last
	// second.
	OwnLimitSince *time.Time `db:"own_limit_since"`
	OwnLimitNoted bool       `db:"own_limit_noted"`
	// Waiting is the number of due requests, but at most the number of free workers. First is the
	// time at which the first of these requests became due.
	Waiting int        `db:"waiting"`
	First   *time.Time `db:"first"`
	// Next is the number of seconds until the next request is due. It is 0 if no request becomes
	// due within dueAhead.
	Next float64 `db:"next"`
}

// barred reports whether the claim takes only requests that must be blocked. These are all requests
// of a suspended workspace. If KeysBarred, they are the requests of API keys.
func (w *workspaceRow) barred() bool { return w.Suspended || w.KeysBarred }

// ignorePaused prevents the claim of requests of a paused workspace. It does not apply to a barred
// workspace, because the requests of that workspace must be blocked.
func (w *workspaceRow) ignorePaused() {
	if w.Paused && !w.barred() {
		w.Waiting, w.First = 0, nil
	}
}

// heldBack reports whether the workspace's own limits delayed the request. It returns true if the
// workspace had reached its limits before the request became late.
func (w workspaceRow) heldBack(r dialqueue.Request) bool {
	return w.OwnLimitSince != nil && w.OwnLimitSince.Sub(r.DueAt) <= lateAfter
}

// totalScope is the scope of the bucket that limits all calls together. The scope of a carrier's
// bucket is trunkPrefix followed by the carrier's name.
const (
	totalScope  = "total"
	trunkPrefix = "trunk "
)

// claimRequests claims due requests, except in four cases:
//   - A call to the number is live. The request is held until that call ends.
//   - Another request to the number is claimed. The request waits 250 ms.
//   - The request has reached the age limit. It waits until Expire ends it.
//   - The agent of the request is paused. The request waits until MovePaused makes it due.
//
// A request before its due time is claimed only if it must be blocked.
//
// The row of the live call is locked, so that the end of that call finds the held request.
//
// An agent can have many pauses. So the paused time is computed only for old requests, and only
// once for each agent and due time.
//
// In conditions with an id, coalesce prevents the planner from using a partial index.
const claimRequests = `
WITH oldest AS MATERIALIZED (
	SELECT q.call_request_id, q.agent_id, q.to_e164, q.look_at, q.due_at, q.due_at < now() - @queue_limit::interval
			AND coalesce(q.expire_at, '-infinity') <= now() + interval '1 minute' AS aged,
		CASE WHEN @barred::boolean THEN false WHEN q.agent_id IN ` + pausedAgents + `
			THEN NOT coalesce((SELECT a.deleted FROM agents a WHERE a.agent_id = q.agent_id), false) ELSE false END AS paused,
		CASE WHEN q.due_at <= now() OR @barred::boolean THEN false
			ELSE NOT coalesce((SELECT a.deleted FROM agents a WHERE a.agent_id = q.agent_id), false) END AS early,
		(SELECT c.call_id FROM calls c WHERE c.workspace_id = @workspace_id AND c.to_e164 = q.to_e164 AND c.ended_at IS NULL
			AND c.direction = 'outbound' ORDER BY c.to_e164 LIMIT 1) AS call_id,
		(SELECT true FROM dial_queue c WHERE c.workspace_id = @workspace_id AND c.to_e164 = q.to_e164
			AND c.state = 'queued' AND c.claimed_by IS NOT NULL AND c.look_at > now() ORDER BY c.to_e164 LIMIT 1) AS behind
	FROM dial_queue q
	WHERE q.workspace_id = @workspace_id AND q.state = 'queued' AND NOT (@keys_only::boolean AND q.by_person)
		AND q.look_at >= coalesce(@scan_from::timestamptz, '-infinity') AND q.look_at <= now()
	ORDER BY q.look_at LIMIT @most::bigint + @spare
), ages AS MATERIALIZED (
	SELECT a.agent_id, a.due_at,
		a.due_at + paused_time(@workspace_id, a.agent_id, a.due_at) < now() - @queue_limit::interval AS expired
	FROM (SELECT DISTINCT o.agent_id, o.due_at FROM oldest o WHERE o.aged) a
), judged AS MATERIALIZED (
	SELECT o.call_request_id, o.look_at, o.due_at, o.aged AND coalesce((SELECT a.expired FROM ages a
			WHERE a.agent_id = o.agent_id AND a.due_at = o.due_at), false) AS expired, o.paused, o.early, o.call_id,
			    coalesce(o.behind, false)
		OR row_number() OVER (PARTITION BY o.to_e164 ORDER BY o.look_at, o.call_request_id) > 1 AS behind
	FROM oldest o
), apart AS MATERIALIZED (
	SELECT j.call_request_id, false AS held, now() + CASE WHEN j.expired THEN interval '1 minute' ELSE interval '250 milliseconds' END AS look_at
	FROM judged j WHERE NOT j.early AND (j.expired OR NOT j.paused AND j.call_id IS NULL AND j.behind)
	UNION ALL
	SELECT j.call_request_id, false, j.due_at FROM judged j WHERE j.early
	UNION ALL
	SELECT j.call_request_id, false, 'infinity' FROM judged j WHERE j.paused AND NOT j.expired AND NOT j.early
	UNION ALL
	SELECT j.call_request_id, true, greatest(live.deadline_at, now() + interval '1 second')
	FROM judged j, LATERAL (SELECT c.deadline_at FROM calls c WHERE c.call_id = j.call_id AND coalesce(c.ended_at, 'infinity') = 'infinity'
		FOR SHARE SKIP LOCKED) live
	WHERE NOT j.expired AND NOT j.early AND NOT j.paused
), aside AS (
	UPDATE dial_queue q SET claimed_by = NULL,
		held = (SELECT a.held FROM apart a WHERE a.call_request_id = q.call_request_id),
		look_at = (SELECT a.look_at FROM apart a WHERE a.call_request_id = q.call_request_id)
	WHERE q.call_request_id = ANY (ARRAY(SELECT l.call_request_id FROM dial_queue l
		WHERE l.call_request_id = ANY (ARRAY(SELECT a.call_request_id FROM apart a))
			AND coalesce(l.state, '') = 'queued' AND coalesce(l.look_at, 'infinity') <= now() FOR UPDATE SKIP LOCKED))
), taken AS MATERIALIZED (
	SELECT l.call_request_id FROM dial_queue l
	WHERE l.call_request_id = ANY (ARRAY(SELECT j.call_request_id FROM judged j
			WHERE NOT j.expired AND NOT j.early AND NOT j.paused AND j.call_id IS NULL AND NOT j.behind
			ORDER BY j.look_at LIMIT @most::bigint))
		AND coalesce(l.state, '') = 'queued' AND coalesce(l.look_at, 'infinity') <= now() FOR UPDATE SKIP LOCKED
)
UPDATE dial_queue SET claimed_by = @instance, held = false, look_at = now() + @lease::interval
WHERE call_request_id = ANY (ARRAY(SELECT t.call_request_id FROM taken t))
RETURNING call_request_id, workspace_id, to_e164, agent_id, contact_id, variables, schedule_if_outside_hours,
	max_call_seconds, queued_at, due_at, looks, traceparent, by_person, look_at AS claimed_until`

const (
	insertBucket = `
INSERT INTO rate_buckets (scope, version, tokens, claimed_at, no_capacity_at, own_limit_since, own_limit_seen,
	next_scan_from, next_scan_at)
VALUES (@scope, 1, @tokens, CASE WHEN @claimed::boolean THEN now() END, CASE WHEN @no_capacity::boolean THEN now() END,
	CASE WHEN @own_limit::boolean THEN now() END, CASE WHEN @own_limit::boolean THEN now() END,
	coalesce(@first::timestamptz, now()), now())
ON CONFLICT (scope, version) DO NOTHING`
	updateBucket = `
UPDATE rate_buckets SET version = version + 1, tokens = @tokens, refilled_at = now(),
	claimed_at = CASE WHEN @claimed::boolean THEN now() ELSE claimed_at END,
	no_capacity_at = CASE WHEN @no_capacity::boolean THEN now() ELSE no_capacity_at END,
	own_limit_since = CASE WHEN own_limit_seen > now() - @late::interval THEN own_limit_since
		WHEN @own_limit::boolean THEN now() END,
	own_limit_seen = CASE WHEN @own_limit::boolean THEN now() ELSE own_limit_seen END,
	scan_from = CASE WHEN next_scan_at < now() - interval '10 seconds' THEN next_scan_from ELSE scan_from END,
	next_scan_from = CASE WHEN next_scan_at > now() - interval '10 seconds' THEN next_scan_from
		ELSE coalesce(@first::timestamptz, now()) END,
	next_scan_at = CASE WHEN next_scan_at > now() - interval '10 seconds' THEN next_scan_at ELSE now() END
WHERE scope = @scope AND version = @version`
)

// Claim takes due requests for this process, within all limits. It serves at most
// dialqueue.WorkspacesPerClaim workspaces, in the given order. After the claim lease, any process
// can claim a request that is still queued.
func (s *Store) Claim(ctx context.Context, c Capacity, workspaces []uuid.UUID) (claimed Claimed, err error) {
	workspaces = workspaces[:min(len(workspaces), dialqueue.WorkspacesPerClaim)]
	err = pg.InPipeline(ctx, s.pool, func(tx *pg.Pipeline) error {
		claimed = Claimed{}
		now, err := s.readUsage(ctx, tx, c, workspaces)
		if err != nil {
			return err
		}
		allocation := dialqueue.Allocate(now.shared, c.Workers, now.workspaces)
		taken := make([]int, len(now.rows))
		if err := s.takeRequests(ctx, tx, now.rows, allocation.Shares, taken, &claimed.Requests); err != nil {
			return err
		}
		claimed.Last, claimed.Drained = allocation.Last, map[uuid.UUID]time.Duration{}
		for i, w := range now.rows {
			if w.Waiting < max(1, c.Workers.Free) && allocation.Shares[i] >= w.Waiting {
				claimed.Drained[w.WorkspaceID] = seconds(w.Next)
			}
			claimed.Left = claimed.Left || allocation.Shares[i] < w.Waiting
		}
		claimed.Wait = allocation.Wait
		now.queueUsage(tx, c, allocation, taken)
		if len(claimed.Requests) > 0 {
			failpoint.Inject("dialer: in claim, before commit")
		}
		return nil
	})
	if err != nil {
		return Claimed{}, fmt.Errorf("claim due requests: %w", err)
	}
	return claimed, nil
}

type usage struct {
	rows       []workspaceRow
	workspaces []dialqueue.WorkspaceDemand
	scopes     []string
	versions   []int64
	shared     []dialqueue.Shared
	first      *time.Time // end of the oldest claim whose request is in use
}

// readUsage takes the lock that excludes other claims. In the same round trip, it reads the waiting
// requests and the used capacity.
func (s *Store) readUsage(ctx context.Context, tx *pg.Pipeline, c Capacity, workspaces []uuid.UUID) (usage, error) {
	u := usage{scopes: []string{totalScope, trunkPrefix + c.Trunk}, versions: make([]int64, 2)}
	inUse, all, ofTrunk, inbound, buckets := map[uuid.UUID]int{}, 0, 0, 0, map[string]bucketRow{}
	var batch pgx.Batch
	batch.Queue(byIndex)
	batch.Queue(lockClaims)
	batch.Queue(checkServer, pg.Args{"server": s.server()}).QueryRow(sameServer)
	batch.Queue(readBuckets, pg.Args{"scopes": u.scopes}).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByName[bucketRow])
		for _, b := range found {
			buckets[b.Scope] = b
		}
		return err
	})
	batch.Queue(countInUse, pg.Args{
		"total": totalScope, "delay": longestClaimDelay, "test": s.modes.Test(),
	}).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var n int
		var first time.Time
		var sameCarrier bool
		_, err := pgx.ForEachRow(rows, []any{&id, &n, &first, &sameCarrier}, func() error {
			inUse[id] = n
			all += n
			if sameCarrier {
				ofTrunk += n
			}
			if u.first == nil || first.Before(*u.first) {
				oldest := first
				u.first = &oldest
			}
			return nil
		})
		return err
	})
	batch.Queue(countInbound, pg.Args{"most": c.OfTrunk.Live, "test": s.modes.Test()}).
		QueryRow(func(row pgx.Row) error { return row.Scan(&inbound) })
	batch.Queue(readWorkspaces, pg.Args{
		"workspaces": workspaces, "workers": max(1, c.Workers.Free), "late": lateAfter, "ahead": dueAhead,
		"calls_per_second": dialqueue.DefaultCallsPerSecond, "max_live": dialqueue.DefaultMaxLiveCalls,
	}).Query(func(rows pgx.Rows) (err error) {
		u.rows, err = pgx.CollectRows(rows, pgx.RowToStructByName[workspaceRow])
		for i := range u.rows {
			u.rows[i].ignorePaused()
		}
		return err
	})
	if err := tx.RunBatch(ctx, &batch); err != nil {
		return usage{}, err
	}
	for i, limit := range []dialqueue.Limit{c.Total, c.OfTrunk} {
		shared := dialqueue.Shared{Limit: limit, InUse: all, Bucket: dialqueue.NewBucket(float64(limit.PerSecond), nil, 0)}
		if b, ok := buckets[u.scopes[i]]; ok {
			u.versions[i] = b.Version
			shared.Bucket = dialqueue.NewBucket(float64(limit.PerSecond), &b.Tokens, seconds(b.FilledFor))
		}
		for _, n := range c.Unused {
			shared.Bucket.Tokens = shared.Bucket.Take(-n)
		}
		u.shared = append(u.shared, shared)
	}
	u.shared[1].InUse = ofTrunk + inbound
	for _, row := range u.rows {
		w := dialqueue.WorkspaceDemand{
			ID: row.WorkspaceID, Barred: row.barred(), Waiting: row.Waiting, InUse: inUse[row.WorkspaceID],
			MaxLive: int(row.MaxLiveCalls),
			Bucket:  dialqueue.NewBucket(float64(row.CallsPerSecond), row.Tokens, seconds(row.FilledFor)),
		}
		w.Bucket.Tokens = w.Bucket.Take(-c.Unused[row.WorkspaceID])
		if row.SinceClaim != nil {
			since := seconds(*row.SinceClaim)
			w.SinceClaim = &since
		}
		u.workspaces = append(u.workspaces, w)
	}
	return u, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// idAt returns the smallest UUIDv7 that can be created at the given time.
func idAt(at time.Time) (id uuid.UUID) {
	for i, ms := 5, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	id[6] = 0x70
	return id
}

func (s *Store) takeRequests(
	ctx context.Context, tx *pg.Pipeline, rows []workspaceRow, shares, taken []int, requests *[]dialqueue.Request,
) error {
	var batch pgx.Batch
	for i, share := range shares {
		if share == 0 {
			continue
		}
		batch.Queue(claimRequests, pg.Args{
			"instance": s.instance, "lease": s.timing.ClaimLease, "queue_limit": s.timing.QueueLimit,
			"workspace_id": rows[i].WorkspaceID, "most": share, "spare": extraRequests, "barred": rows[i].barred(),
			"keys_only": rows[i].KeysBarred && !rows[i].Suspended, "scan_from": rows[i].ScanFrom,
		}).Query(func(found pgx.Rows) error {
			claimed, err := pgx.CollectRows(found, pgx.RowToStructByName[dialqueue.Request])
			taken[i] = len(claimed)
			for j := range claimed {
				claimed[j].HeldBack, claimed[j].TookToken = rows[i].heldBack(claimed[j]), !rows[i].barred()
			}
			*requests = append(*requests, claimed...)
			return err
		})
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.RunBatch(ctx, &batch)
}

func (u usage) queueUsage(tx *pg.Pipeline, c Capacity, allocation dialqueue.Allocation, taken []int) {
	all := 0
	var batch pgx.Batch
	for i, w := range u.workspaces {
		tokens := taken[i]
		if w.Barred {
			tokens = 0
		}
		all += tokens
		noCapacity := allocation.NoCapacity[i] && !w.Barred && !u.rows[i].NoCapacityLately && c.OfTrunk.Live > 0
		ownLimit := allocation.OwnLimit[i] && !u.rows[i].OwnLimitNoted
		if taken[i] > 0 || noCapacity || ownLimit || c.Unused[w.ID] > 0 {
			saveBucket(&batch, u.rows[i].Version, pg.Args{
				"scope": w.ID.String(), "tokens": w.Bucket.Take(tokens), "claimed": tokens > 0,
				"no_capacity": noCapacity, "own_limit": ownLimit, "first": u.rows[i].First,
			})
		}
	}
	for i, shared := range u.shared {
		if all > 0 || len(c.Unused) > 0 {
			saveBucket(&batch, u.versions[i], pg.Args{
				"scope": u.scopes[i], "tokens": shared.Bucket.Take(all), "claimed": all > 0,
				"no_capacity": false, "own_limit": false, "first": u.first,
			})
		}
	}
	tx.QueueBatch(&batch)
}

// saveBucket inserts the bucket if version is 0. Otherwise it changes the bucket if the stored
// version equals version.
func saveBucket(batch *pgx.Batch, version int64, args pg.Args) {
	args["version"], args["late"] = version, lateAfter
	if version == 0 {
		batch.Queue(insertBucket, args)
		return
	}
	batch.Queue(updateBucket, args)
}
