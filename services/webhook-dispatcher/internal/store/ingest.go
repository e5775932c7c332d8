package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// Ingested is what a batch of events came to.
type Ingested struct {
	// Matched is, for each event, how many subscriptions list it.
	Matched []int
	// Waiting is how many deliveries were given to the claim.
	Waiting int
}

// Ingest stores each event once, and one delivery for every subscription of its workspace that lists
// its type now. The delivery is queued for an active subscription and skipped for a paused or failed
// one. It is skipped if the workspace has lost the webhooks feature, and held if the workspace is
// suspended. An event that is stored already changes nothing. A delivery that gets a seat starts
// without a claim once tx has ended (Direct.End). A pipeline writes the rows with COMMIT, any other
// tx immediately.
func (s *Store) Ingest(ctx context.Context, tx pgx.Tx, direct *Direct, events ...delivery.Event) (done Ingested, err error) {
	workspaces, err := match(ctx, tx, events)
	if err != nil {
		return done, fmt.Errorf("match subscriptions of %d events: %w", len(events), err)
	}
	done.Matched = make([]int, len(events))
	var rows []row
	seen := make(map[uuid.UUID]bool, len(events)) // one event may be two records
	for i := range events {
		ev, workspace := &events[i], workspaces[events[i].WorkspaceID]
		if workspace == nil {
			continue
		}
		for _, sub := range workspace.subs {
			if !slices.Contains(sub.Events, ev.Type) {
				continue
			}
			done.Matched[i]++
			if !seen[ev.ID] {
				rows = append(rows, row{
					id: delivery.ID(sub.ID, ev.ID), event: ev, sub: sub, noWebhooks: !workspace.webhooks, held: workspace.suspended,
				})
			}
		}
		seen[ev.ID] = true
	}
	direct.seat(s, rows)
	for _, r := range rows {
		if r.flows() && !direct.has(r.id) {
			done.Waiting++
		}
	}
	return done, put(ctx, tx, rows, direct)
}

// workspaceRow is a workspace as its events meet it.
type workspaceRow struct {
	suspended bool
	webhooks  bool // true also if the dispatcher has not received the workspace yet
	subs      []*matchRow
}

type matchRow struct {
	ID           uuid.UUID
	WorkspaceID  uuid.UUID
	Status       subscription.Status
	Events       []string
	URL          string
	SecretSealed []byte

	secret *string // once it was opened
}

// match locks what decides, workspaces first, in the order of their ids: a pause, suspension, deletion, PATCH or rotation that is answered
// finds every row written before it.
func match(ctx context.Context, tx pgx.Tx, events []delivery.Event) (map[uuid.UUID]*workspaceRow, error) {
	found := map[uuid.UUID]*workspaceRow{}
	var ids []uuid.UUID
	var types []string
	for _, ev := range events {
		if found[ev.WorkspaceID] == nil {
			found[ev.WorkspaceID], ids = &workspaceRow{webhooks: true}, append(ids, ev.WorkspaceID)
		}
		if !slices.Contains(types, ev.Type) {
			types = append(types, ev.Type)
		}
	}
	args := pg.Args{"workspaces": ids, "types": types}
	var asked pgx.Batch
	asked.Queue(shareWorkspaces, args).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var suspended, webhooks bool
		_, err := pgx.ForEachRow(rows, []any{&id, &suspended, &webhooks}, func() error {
			found[id].suspended, found[id].webhooks = suspended, webhooks
			return nil
		})
		return err
	})
	asked.Queue(matchSubscriptions, args).Query(func(rows pgx.Rows) error {
		subs, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[matchRow])
		for _, sub := range subs {
			workspace := found[sub.WorkspaceID]
			workspace.subs = append(workspace.subs, sub)
		}
		return err
	})
	return found, tx.SendBatch(ctx, &asked).Close()
}

const shareWorkspaces = `
SELECT id, suspended, webhooks_enabled FROM workspace WHERE id = ANY (@workspaces::uuid[]) ORDER BY id FOR SHARE`

const matchSubscriptions = `
SELECT id, workspace_id, status, events, url, secret_sealed FROM webhook_subscription
WHERE workspace_id = ANY (@workspaces::uuid[]) AND deleted_at IS NULL AND events && @types::text[]
ORDER BY id
FOR SHARE`

// EnqueueTest queues one webhook.test for an active subscription. For any other status it returns 409
// subscription_not_active. The delivery is held while the workspace's deliveries are held.
func (s *Store) EnqueueTest(ctx context.Context, subscriptionID uuid.UUID, ev delivery.Event) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		sub, held, err := share(ctx, tx, ev.WorkspaceID, subscriptionID)
		if err != nil {
			return err
		}
		if sub.Status != subscription.Active {
			return subscription.NotActive(sub.Status)
		}
		return put(ctx, tx, []row{{id: delivery.ID(sub.ID, ev.ID), event: &ev, sub: &sub, held: held}}, nil)
	})
}

// row is one delivery that is about to be written.
type row struct {
	id    uuid.UUID
	event *delivery.Event
	sub   *matchRow
	// noWebhooks is true if the workspace has lost the webhooks feature.
	noWebhooks bool
	held       bool
}

// skips reports whether the delivery is stored as skipped; flows, whether it is due immediately.
func (r row) skips() bool { return r.noWebhooks || r.sub.Status != subscription.Active }
func (r row) flows() bool { return !r.skips() && !r.held }

func (r row) erased() bool { return r.event.Erased }

// call is what the row stands in order with: what belongs to no call is a line of its own.
func (r row) call() uuid.UUID {
	if r.event.CallID == nil {
		return r.event.ID
	}
	return *r.event.CallID
}

// put writes deliveries with their events. Rows go in the order of the events' ids, so that two transactions with the same events wait for each
// other and do not deadlock.
func put(ctx context.Context, tx pgx.Tx, rows []row, direct *Direct) error {
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(bytes.Compare(a.event.ID[:], b.event.ID[:]), bytes.Compare(a.sub.ID[:], b.sub.ID[:]))
	})
	events := slices.CompactFunc(slices.Clone(rows), func(a, b row) bool { return a.event.ID == b.event.ID })
	held := []uuid.UUID{}
	for _, r := range events {
		if r.held && !slices.Contains(held, r.event.WorkspaceID) {
			held = append(held, r.event.WorkspaceID)
		}
	}
	var batch pgx.Batch
	args := columns(events)
	args["bodies"] = each(events, func(r row) []byte { return r.event.Body })
	args["erased"] = each(events, row.erased)
	batch.Queue(insertEvents, args)
	args = columns(rows)
	args["ids"], args["owners"] = each(rows, func(r row) uuid.UUID { return r.id }), each(rows, func(r row) uuid.UUID { return r.sub.ID })
	args["skips"], args["traceparents"] = each(rows, row.skips), each(rows, func(r row) string { return r.event.Traceparent })
	args["erased"] = each(rows, row.erased)
	args["held"], args["seated"], args["lease"] = held, direct.ids(), direct.seconds()
	queued := batch.Queue(insertDeliveries, args)
	if direct != nil {
		direct.put = time.Now()
		queued.Query(direct.read)
	}
	if err := pg.LaterAll(ctx, tx, &batch); err != nil {
		return fmt.Errorf("insert %d deliveries of %d events: %w", len(rows), len(events), err)
	}
	return nil
}

// columns are what an event's row and its deliveries' have in common.
func columns(rows []row) pg.Args {
	return pg.Args{
		"events":     each(rows, func(r row) uuid.UUID { return r.event.ID }),
		"created":    each(rows, func(r row) time.Time { return r.event.CreatedAt }),
		"workspaces": each(rows, func(r row) uuid.UUID { return r.event.WorkspaceID }),
		"calls":      each(rows, func(r row) *uuid.UUID { return r.event.CallID }),
		"types":      each(rows, func(r row) string { return r.event.Type }),
		"sequences":  each(rows, func(r row) int32 { return r.event.Sequence }),
	}
}

func each[T any](rows []row, value func(row) T) []T {
	values := make([]T, len(rows))
	for i, r := range rows {
		values[i] = value(r)
	}
	return values
}

const insertEvents = `
INSERT INTO webhook_event (id, created_at, workspace_id, call_id, type, sequence, body, erased_at)
SELECT m.id, m.created_at, m.workspace_id, m.call_id, m.type, m.sequence, m.body, CASE WHEN m.erased THEN now() END
FROM unnest(@events::uuid[], @created::timestamptz[], @workspaces::uuid[], @calls::uuid[], @types::text[], @sequences::int[], @bodies::bytea[], @erased::boolean[])
     AS m (id, created_at, workspace_id, call_id, type, sequence, body, erased)
ON CONFLICT DO NOTHING`

// Only what is new in history is queued: a record read again after its delivery was done stays done. What has a seat is born claimed,
// unless an earlier event of its call is before or in its first attempt, as in claimDue. The lease begins now, not when the transaction did.
// An event told anew at another time is new in history; while it is open it stays queued once.
const insertDeliveries = `
WITH fresh AS (
    INSERT INTO webhook_delivery (id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, status,
                                  traceparent, done_at, erased_at)
    SELECT m.id, m.created_at, m.workspace_id, m.owner, m.event_id, m.type, m.call_id, m.sequence,
           CASE WHEN m.skip THEN 'skipped' ELSE 'queued' END, m.traceparent, CASE WHEN m.skip THEN now() END, CASE WHEN m.erased THEN now() END
    FROM unnest(@ids::uuid[], @created::timestamptz[], @workspaces::uuid[], @owners::uuid[], @events::uuid[], @types::text[],
                @calls::uuid[], @sequences::int[], @skips::boolean[], @traceparents::text[], @erased::boolean[])
         AS m (id, created_at, workspace_id, owner, event_id, type, call_id, sequence, skip, traceparent, erased)
    ON CONFLICT DO NOTHING
    RETURNING id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, status, traceparent
), placed AS MATERIALIZED (
    SELECT f.*, f.id = ANY (@seated::uuid[]) AND NOT EXISTS (
               SELECT 1 FROM webhook_queue e
               WHERE e.subscription_id = f.subscription_id AND e.call_id = f.call_id AND NOT e.is_retry AND e.sequence < f.sequence) AS leased
    FROM fresh f
    WHERE f.status = 'queued'
), queued AS (
    INSERT INTO webhook_queue (delivery_id, created_at, workspace_id, subscription_id, event_id, event_type, call_id, sequence, traceparent,
                               held, attempt, due_at)
    SELECT p.id, p.created_at, p.workspace_id, p.subscription_id, p.event_id, p.event_type, p.call_id, p.sequence, p.traceparent,
           p.workspace_id = ANY (@held::uuid[]), CASE WHEN p.leased THEN 1 ELSE 0 END,
           CASE WHEN p.leased THEN clock_timestamp() + make_interval(secs => @lease::float8) ELSE now() END
    FROM placed p
    ON CONFLICT DO NOTHING
    RETURNING delivery_id, attempt
)
SELECT delivery_id FROM queued WHERE attempt = 1`

// Seats are room for first attempts that begin without a claim.
type Seats interface {
	// Seat reserves room for one attempt; false: the delivery waits for the claim.
	Seat(subscriptionID uuid.UUID, url string) bool
	// Unseat gives back a seat that came to nothing.
	Unseat(subscriptionID uuid.UUID)
}

// Direct is what of one transaction begins without a claim. nil is nothing.
type Direct struct {
	seats  Seats
	lease  time.Duration
	limit  time.Duration
	seated map[uuid.UUID]delivery.Work // by delivery
	leased []uuid.UUID                 // the deliveries that were born claimed
	put    time.Time
}

// NewDirect asks seats for what one transaction ingests; lease is how long nobody else may claim what has one.
func NewDirect(seats Seats, lease time.Duration) *Direct {
	return &Direct{seats: seats, lease: lease, limit: StartLimit(lease), seated: map[uuid.UUID]delivery.Work{}}
}

// StartLimit is how long the statement that leases attempts may take, with COMMIT, before they are left to the lease: an attempt
// must end before that does.
func StartLimit(lease time.Duration) time.Duration { return min(5*time.Second, lease/5) }

// End answers, once tx has ended, the work that is to begin now; its seats go with it. Every other seat is given back. committed is false unless
// COMMIT is known to have succeeded. A second call does nothing.
func (d *Direct) End(committed bool) (work []delivery.Work) {
	if committed && time.Since(d.put) < d.limit {
		for _, id := range d.leased {
			if w, seated := d.seated[id]; seated {
				work = append(work, w)
				delete(d.seated, id)
			}
		}
	}
	for _, w := range d.seated {
		d.seats.Unseat(w.SubscriptionID)
	}
	clear(d.seated)
	return work
}

// seat asks for a seat for each row that is due: of a call's events to one subscription for the first alone, and for none behind one that got none.
func (d *Direct) seat(s *Store, rows []row) {
	if d == nil {
		return
	}
	type line struct{ sub, call uuid.UUID }
	first, full := map[line]int32{}, map[uuid.UUID]bool{}
	for _, r := range rows {
		at := line{r.sub.ID, r.call()}
		if least, known := first[at]; r.flows() && (!known || r.event.Sequence < least) {
			first[at] = r.event.Sequence
		}
	}
	for _, r := range rows {
		if !r.flows() || full[r.sub.ID] || r.event.Sequence > first[line{r.sub.ID, r.call()}] {
			continue
		}
		if !d.seats.Seat(r.sub.ID, r.sub.URL) {
			full[r.sub.ID] = true
			continue
		}
		d.seated[r.id] = delivery.Work{
			DeliveryID: r.id, SubscriptionID: r.sub.ID, EventID: r.event.ID, EventType: r.event.Type, CreatedAt: r.event.CreatedAt,
			CallID: r.event.CallID, Attempt: 1, URL: r.sub.URL, Secret: s.secret(r.sub), Body: r.event.Body, Traceparent: r.event.Traceparent,
		}
	}
}

// secret opens the subscription's once. One under a key that was taken away is empty: the attempt is not sent and fails.
func (s *Store) secret(sub *matchRow) string {
	if sub.secret == nil {
		opened, _ := s.box.Open(sub.SecretSealed, sub.ID.String())
		text := string(opened)
		sub.secret = &text
	}
	return *sub.secret
}

func (d *Direct) has(id uuid.UUID) bool {
	if d == nil {
		return false
	}
	_, seated := d.seated[id]
	return seated
}

// ids are the deliveries with a seat, seconds their lease.
func (d *Direct) ids() []uuid.UUID {
	if d == nil {
		return []uuid.UUID{}
	}
	return slices.AppendSeq(make([]uuid.UUID, 0, len(d.seated)), maps.Keys(d.seated))
}

func (d *Direct) seconds() float64 {
	if d == nil {
		return 0
	}
	return d.lease.Seconds()
}

// read notes what was born claimed.
func (d *Direct) read(rows pgx.Rows) (err error) {
	d.leased, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	return err
}
