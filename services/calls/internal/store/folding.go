package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
)

// Wanted is what facts are about.
type Wanted struct {
	// Partitions are those that the facts came on.
	Partitions []int32
	Requests   []uuid.UUID
	Calls      []uuid.UUID
	// CallsOfRequests adds the calls that came of the requests.
	CallsOfRequests bool
	// Analysed are the workspaces in whose calls something was said.
	Analysed []uuid.UUID
}

// Fold is a transaction that folds facts into requests and calls: all of them are locked and read in one round trip, and what has changed is
// written once, however many facts changed it.
type Fold struct {
	// Now is the database's clock after everything was locked: due times are its own.
	Now time.Time

	requests       map[uuid.UUID]*callstate.Request
	calls          map[uuid.UUID]*callstate.Call
	transcribed    map[uuid.UUID]bool // workspaces that want what was said kept
	moved, charged []*callstate.Request
	changed        []*callstate.Call
	told           pgx.Batch
}

// By index, also while the plan is one that was made beside empty tables.
const foldByIndex = `SELECT set_config('enable_seqscan', 'off', true)`

// The dial and the wallet facts of one request share a key, and so a partition number: two transactions that fold never wait for each other's rows in a
// circle, since both take lanes, requests and calls in this order.
const lockLanes = `
SELECT pg_advisory_xact_lock(hashtextextended('lane', lane.number))
FROM (SELECT DISTINCT number FROM unnest(@partitions::bigint[]) number ORDER BY number) lane`

const lockRequests = `SELECT ` + requestColumns + ` FROM call_requests WHERE id = ANY (@ids::uuid[]) ORDER BY id FOR UPDATE`

const lockCalls = `SELECT ` + foldedCall + ` FROM calls WHERE id = ANY (@ids::uuid[]) ORDER BY id FOR UPDATE`

const lockCallsOfRequests = `SELECT ` + foldedCall + ` FROM calls WHERE call_request_id = ANY (@ids::uuid[]) ORDER BY id FOR UPDATE`

const transcribedWorkspaces = `SELECT id FROM workspaces WHERE id = ANY (@ids::uuid[]) AND transcripts`

// Lock makes this transaction the only one that folds facts of the partitions, and reads what the facts are about.
func (s *Store) Lock(ctx context.Context, tx pgx.Tx, w Wanted) (*Fold, error) {
	f := &Fold{requests: map[uuid.UUID]*callstate.Request{}, calls: map[uuid.UUID]*callstate.Call{}, transcribed: map[uuid.UUID]bool{}}
	lanes := make([]int64, len(w.Partitions))
	for i, n := range w.Partitions {
		lanes[i] = int64(n)
	}
	var batch pgx.Batch
	batch.Queue(foldByIndex)
	batch.Queue(lockLanes, pg.Args{"partitions": lanes})
	if len(w.Requests) > 0 {
		batch.Queue(lockRequests, pg.Args{"ids": w.Requests}).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[callstate.Request])
			for _, req := range found {
				f.requests[req.ID] = req
			}
			return err
		})
	}
	take := func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[callstate.Call])
		for _, c := range found {
			f.calls[c.ID] = c
		}
		return err
	}
	if len(w.Calls) > 0 {
		batch.Queue(lockCalls, pg.Args{"ids": w.Calls}).Query(take)
	}
	if w.CallsOfRequests {
		batch.Queue(lockCallsOfRequests, pg.Args{"ids": w.Requests}).Query(take)
	}
	if len(w.Analysed) > 0 {
		batch.Queue(transcribedWorkspaces, pg.Args{"ids": w.Analysed}).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			for _, id := range found {
				f.transcribed[id] = true
			}
			return err
		})
	}
	batch.Queue(dbNow).QueryRow(func(row pgx.Row) error { return row.Scan(&f.Now) })
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("lock %d requests and %d calls: %w", len(w.Requests), len(w.Calls), err)
	}
	return f, nil
}

// Request is a locked request; nil when there is none.
func (f *Fold) Request(id uuid.UUID) *callstate.Request { return f.requests[id] }

// Call is a locked call, or one that this fold has begun; nil when it is not known yet.
func (f *Fold) Call(id uuid.UUID) *callstate.Call { return f.calls[id] }

// CallOfRequest is the newest call that came of a request; nil when none is known yet.
func (f *Fold) CallOfRequest(requestID uuid.UUID) (newest *callstate.Call) {
	for _, c := range f.calls {
		if c.CallRequestID != nil && *c.CallRequestID == requestID && (newest == nil || slices.Compare(c.ID[:], newest.ID[:]) > 0) {
			newest = c
		}
	}
	return newest
}

// Transcribed says whether the workspace, one of Wanted.Analysed, wants what was said kept.
func (f *Fold) Transcribed(workspaceID uuid.UUID) bool { return f.transcribed[workspaceID] }

// Move has a changed request written.
func (f *Fold) Move(req *callstate.Request) {
	if !slices.Contains(f.moved, req) {
		f.moved = append(f.moved, req)
	}
}

// Cancel has a request written that the dialer's own news canceled, and tells call-requests.v1 what our lost commit would have.
func (f *Fold) Cancel(ctx context.Context, req *callstate.Request, at time.Time) error {
	f.Move(req)
	return outbox.Queue(ctx, &f.told, requestEvent(req, req.Withdrawn(at)))
}

// Charge has what billing-wallet said of a request written; customers do not see it there.
func (f *Fold) Charge(req *callstate.Request) {
	if !slices.Contains(f.charged, req) {
		f.charged = append(f.charged, req)
	}
}

// Keep has a changed or new call written and, unless event is "", tells call-events.v1 of it as it is now.
func (f *Fold) Keep(ctx context.Context, c *callstate.Call, event openapi.EventType) error {
	f.calls[c.ID] = c
	if !slices.Contains(f.changed, c) {
		f.changed = append(f.changed, c)
	}
	return tellOf(ctx, &f.told, c, event, f.Now)
}

// tellOf queues the public event; none when event is "".
func tellOf(ctx context.Context, batch *pgx.Batch, c *callstate.Call, event openapi.EventType, at time.Time) error {
	if event == "" {
		return nil
	}
	fact, err := c.Event(event, at)
	if err != nil {
		return err
	}
	return outbox.Queue(ctx, batch, outbox.Event{
		ID: callstate.EventID(c.ID, event), Topic: kafka.CallEvents, Key: c.ID.String(), WorkspaceID: c.WorkspaceID, Message: fact,
	})
}

// Write writes what has changed; nothing may be folded after it.
func (f *Fold) Write(ctx context.Context, tx pgx.Tx) error {
	var batch pgx.Batch
	for _, req := range f.moved {
		batch.Queue(saveRequest, pg.Args(saveArgs(req)))
	}
	for _, req := range f.charged {
		batch.Queue(saveCharge, pg.Args{"id": req.ID, "charge_settled": req.ChargeSettled, "credits_micro": req.Credits})
	}
	for _, c := range f.changed {
		batch.Queue(saveCall, pg.Args(callArgs(c)))
	}
	batch.QueuedQueries = append(batch.QueuedQueries, f.told.QueuedQueries...)
	if batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("write %d requests and %d calls: %w", len(f.moved), len(f.changed), err)
	}
	return nil
}

// HasEvents reports whether Write puts events into the outbox.
func (f *Fold) HasEvents() bool { return f.told.Len() > 0 }
