package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Ingested is the result of Ingest and Match.
type Ingested struct {
	// Matched[i] is the number of subscriptions that list the type of event i.
	Matched []int
	// Due contains the subscriptions that have due deliveries when tx commits. This includes
	// subscriptions whose deliveries an earlier transaction has stored.
	Due []Due
	// Insert contains the INSERT statements for the events and their deliveries. Only Match sets
	// Insert.
	Insert *pgx.Batch
}

// Ingest stores each event once, with the next position in the stream of its workspace, and one
// delivery for every subscription that lists the event's type. The delivery is queued if the
// subscription is active and the workspace has the webhooks feature; otherwise it is skipped. An
// event that is already stored changes nothing.
//
// Until tx ends, no other transaction can store events of the same workspaces. So Ingest must be
// near the end of tx.
func (s *Store) Ingest(ctx context.Context, tx pgx.Tx, events ...deliveries.Event) (done Ingested, err error) {
	if done, err = s.Match(ctx, tx, events...); err != nil {
		return done, err
	}
	if err := tx.SendBatch(ctx, done.Insert).Close(); err != nil {
		return done, fmt.Errorf("insert deliveries of %d events: %w", len(events), err)
	}
	done.Insert = nil
	return done, nil
}

// Match is like Ingest, but returns the INSERT statements in Insert instead of sending them. The
// caller must send them in the same transaction, for example together with COMMIT.
func (s *Store) Match(ctx context.Context, tx pgx.Tx, events ...deliveries.Event) (done Ingested, err error) {
	subscriptions, err := matchEvents(ctx, tx, events)
	if err != nil {
		return done, fmt.Errorf("match subscriptions of %d events: %w", len(events), err)
	}
	done.Matched = make([]int, len(events))
	var rows []newDelivery
	seen := make(map[uuid.UUID]bool, len(events)) // two records of the batch can contain the same event
	for i := range events {
		ev := &events[i]
		for _, sub := range subscriptions[ev.WorkspaceID] {
			if !slices.Contains(sub.Events, ev.Type) || sub.ID == ev.Excluded {
				continue
			}
			done.Matched[i]++
			if !seen[ev.ID] {
				rows = append(rows, newDelivery{id: deliveries.ID(sub.ID, ev.ID, ev.CreatedAt), event: ev, sub: sub})
			}
		}
		seen[ev.ID] = true
	}
	queued := map[uuid.UUID]bool{}
	for _, r := range rows {
		if !r.skips() && !queued[r.sub.ID] {
			queued[r.sub.ID] = true
			done.Due = append(done.Due, Due{SubscriptionID: r.sub.ID, URL: r.sub.URL, From: r.sub.MatchedAt})
		}
	}
	done.Insert = &pgx.Batch{}
	if len(rows) > 0 {
		queueDeliveries(done.Insert, rows)
	}
	queueStreamed(done.Insert, events)
	return done, nil
}

type matchRow struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Status      subscriptions.Status
	Events      []string
	URL         string
	// MatchedAt is a time before the due times of all deliveries that this transaction inserts.
	MatchedAt time.Time
	// Webhooks is false if the workspace has no webhooks feature. It is true if the workspace is
	// not stored yet.
	Webhooks bool
}

// matchEvents reads the subscriptions that list the types of the events, with their workspaces. It
// locks the subscriptions in the order of their ids until the deliveries are committed. So after
// the response to a DELETE, no delivery of the subscription is inserted.
func matchEvents(ctx context.Context, tx pgx.Tx, events []deliveries.Event) (map[uuid.UUID][]*matchRow, error) {
	found := map[uuid.UUID][]*matchRow{} // the matched subscriptions of each workspace
	var ids []uuid.UUID
	var types []string
	for _, ev := range events {
		if !slices.Contains(ids, ev.WorkspaceID) {
			ids = append(ids, ev.WorkspaceID)
		}
		if !slices.Contains(types, ev.Type) {
			types = append(types, ev.Type)
		}
	}
	var batch pgx.Batch
	batch.Queue(genericPlan)
	batch.Queue(selectMatching, pg.Args{"workspaces": ids, "types": types}).Query(func(rows pgx.Rows) error {
		subs, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[matchRow])
		for _, sub := range subs {
			found[sub.WorkspaceID] = append(found[sub.WorkspaceID], sub)
		}
		return err
	})
	return found, tx.SendBatch(ctx, &batch).Close()
}

const selectMatching = `
SELECT s.id, s.workspace_id, s.status, s.events, s.url, clock_timestamp() AS matched_at,
       coalesce((SELECT w.webhooks_enabled FROM workspaces w WHERE w.id = s.workspace_id LIMIT 1), true) AS webhooks
FROM subscriptions s
WHERE s.workspace_id = ANY (@workspaces::uuid[]) AND s.deleted_at IS NULL AND s.events && @types::text[]
ORDER BY s.id
FOR SHARE OF s`

// EnqueueTest queues a webhook.test event for a subscription. The event has no position in the
// stream, because it is for this subscription only. EnqueueTest returns the 409 error
// subscription_not_active if the subscription is not active.
func (s *Store) EnqueueTest(ctx context.Context, subscriptionID uuid.UUID, ev deliveries.Event) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		sub, err := lockShared(ctx, tx, ev.WorkspaceID, subscriptionID)
		if err != nil {
			return err
		}
		if sub.Status != subscriptions.Active {
			return subscriptions.NotActive(sub.Status)
		}
		var batch pgx.Batch
		batch.Queue(insertEvents, eventArgs([]*deliveries.Event{&ev}))
		queueDeliveries(&batch, []newDelivery{{id: deliveries.ID(sub.ID, ev.ID, ev.CreatedAt), event: &ev, sub: &sub}})
		return tx.SendBatch(ctx, &batch).Close()
	})
}

type newDelivery struct {
	id    uuid.UUID
	event *deliveries.Event
	sub   *matchRow
}

func (r newDelivery) skips() bool { return !r.sub.Webhooks || r.sub.Status != subscriptions.Active }

// queueDeliveries adds the statement that stores deliveries. Rows are ordered by event id, so that
// two transactions with the same events cannot deadlock.
func queueDeliveries(batch *pgx.Batch, rows []newDelivery) {
	slices.SortFunc(rows, func(a, b newDelivery) int {
		return cmp.Or(bytes.Compare(a.event.ID[:], b.event.ID[:]), bytes.Compare(a.sub.ID[:], b.sub.ID[:]))
	})
	args := eventArgs(mapRows(rows, func(r newDelivery) *deliveries.Event { return r.event }))
	args["ids"], args["owners"] = mapRows(rows, func(r newDelivery) uuid.UUID { return r.id }), mapRows(rows, func(r newDelivery) uuid.UUID { return r.sub.ID })
	args["skips"], args["traceparents"] = mapRows(rows, newDelivery.skips), mapRows(rows, func(r newDelivery) string { return r.event.Traceparent })
	batch.Queue(insertDeliveries, args)
}

// queueStreamed adds the statement that stores the events with their positions in the stream. It is
// the last statement, because it locks the workspaces until the commit.
func queueStreamed(batch *pgx.Batch, events []deliveries.Event) {
	once := make([]*deliveries.Event, 0, len(events))
	order := make(map[uuid.UUID]int, len(events))
	for i := range events {
		if _, known := order[events[i].ID]; !known { // two records of the batch can contain the same event
			order[events[i].ID], once = i, append(once, &events[i])
		}
	}
	slices.SortFunc(once, func(a, b *deliveries.Event) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	args := eventArgs(once)
	args["order"] = mapRows(once, func(ev *deliveries.Event) int { return order[ev.ID] })
	batch.Queue(insertStreamed, args)
}

func eventArgs(events []*deliveries.Event) pg.Args {
	return pg.Args{
		"events":     mapRows(events, func(ev *deliveries.Event) uuid.UUID { return ev.ID }),
		"created":    mapRows(events, func(ev *deliveries.Event) time.Time { return ev.CreatedAt }),
		"workspaces": mapRows(events, func(ev *deliveries.Event) uuid.UUID { return ev.WorkspaceID }),
		"calls":      mapRows(events, func(ev *deliveries.Event) *uuid.UUID { return ev.ObjectID }),
		"types":      mapRows(events, func(ev *deliveries.Event) string { return ev.Type }),
		"sequences":  mapRows(events, func(ev *deliveries.Event) int32 { return ev.Sequence }),
		"bodies":     mapRows(events, func(ev *deliveries.Event) []byte { return ev.Body }),
		"erased":     mapRows(events, func(ev *deliveries.Event) bool { return ev.Erased }),
	}
}

func mapRows[R, T any](rows []R, value func(R) T) []T {
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = value(r)
	}
	return values
}

const insertEvents = `
INSERT INTO events (id, created_at, workspace_id, call_id, type, sequence, body, erased_at)
SELECT m.id, m.created_at, m.workspace_id, m.call_id, m.type, m.sequence, m.body, CASE WHEN m.erased THEN now() END
FROM unnest(@events::uuid[], @created::timestamptz[], @workspaces::uuid[], @calls::uuid[], @types::text[], @sequences::int[], @bodies::bytea[], @erased::boolean[])
     AS m (id, created_at, workspace_id, call_id, type, sequence, body, erased)
ON CONFLICT DO NOTHING`

// The update of stream_heads locks the row of the workspace. A concurrent transaction waits for
// this lock until the commit, and then assigns the next positions. Rows are locked in the order of
// the workspaces, to prevent deadlocks. If an event was published again with another time, it gets
// a new row but keeps its position.
const insertStreamed = `
WITH fresh AS MATERIALIZED (` + insertEvents + `
    RETURNING id, created_at, workspace_id, type
), heads AS (
    INSERT INTO stream_heads AS h (workspace_id, position, timeline, restart)
    SELECT fresh.workspace_id, count(*), (SELECT database_timeline()), 0
    FROM fresh GROUP BY fresh.workspace_id ORDER BY fresh.workspace_id
    ON CONFLICT (workspace_id) DO UPDATE SET
        position = h.position + EXCLUDED.position, timeline = EXCLUDED.timeline,
        restart = CASE WHEN h.timeline <> EXCLUDED.timeline THEN h.position ELSE h.restart END
    RETURNING h.workspace_id, h.position
)
INSERT INTO stream_events (workspace_id, position, ingested_at, event_id, event_created_at, type)
SELECT f.workspace_id, heads.position - row_number() OVER (PARTITION BY f.workspace_id ORDER BY batch.place DESC) + 1,
       clock_timestamp(), f.id, f.created_at, f.type
FROM fresh f
JOIN heads ON heads.workspace_id = f.workspace_id
JOIN unnest(@events::uuid[], @order::int[]) AS batch (id, place) ON batch.id = f.id
WHERE NOT EXISTS (SELECT FROM stream_events s WHERE s.event_id = f.id)`

// A delivery is queued only if its row in deliveries is new, so a record that Kafka repeats queues
// nothing.
//
// An event that is published again with another time gets no second delivery while its first
// attempt is queued.
const insertDeliveries = `
WITH fresh AS (
    INSERT INTO deliveries (id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, status,
                                  traceparent, done_at, erased_at)
    SELECT m.id, m.created_at, m.workspace_id, m.owner, m.event_id, m.type, m.call_id, m.sequence,
           CASE WHEN m.skip THEN 'skipped' ELSE 'queued' END, m.traceparent, CASE WHEN m.skip THEN now() END, CASE WHEN m.erased THEN now() END
    FROM unnest(@ids::uuid[], @created::timestamptz[], @workspaces::uuid[], @owners::uuid[], @events::uuid[], @types::text[],
                @calls::uuid[], @sequences::int[], @skips::boolean[], @traceparents::text[], @erased::boolean[])
         AS m (id, created_at, workspace_id, owner, event_id, type, call_id, sequence, skip, traceparent, erased)
    WHERE m.call_id IS NULL OR (
        SELECT true FROM delivery_queue q
        WHERE q.subscription_id = m.owner AND q.call_id = m.call_id AND NOT q.is_retry AND q.sequence = m.sequence
          AND q.event_id = m.event_id AND q.created_at <> m.created_at
        LIMIT 1) IS NULL
    ON CONFLICT DO NOTHING
    RETURNING id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, status, traceparent
)
INSERT INTO delivery_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, call_id,
	sequence,
                           traceparent, due_at)
SELECT f.id, f.created_at, f.workspace_id, f.subscription_id, f.event_id, f.event_type, f.call_id, f.sequence,
       f.traceparent, clock_timestamp()
FROM fresh f
WHERE f.status = 'queued'
ON CONFLICT DO NOTHING`
