package store

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/recordings"
)

// Wanted identifies the rows that a batch of events can change.
type Wanted struct {
	// Partitions are the Kafka partitions of the events in the batch.
	Partitions []int32
	Requests   []uuid.UUID
	Calls      []uuid.UUID
	// If CallsOfRequests is true, the calls of the requests are read too.
	CallsOfRequests bool
	// Lock reads the charges that arrived before the inbound calls in InboundCalls.
	InboundCalls []uuid.UUID
	// Workspaces are the workspaces whose rules for transcripts and recordings apply to the batch.
	Workspaces []uuid.UUID
}

// Fold applies a batch of events to requests and calls in one transaction. It locks and reads all
// rows in one round trip, and writes each changed row only once.
type Fold struct {
	// Now is the time of the database's clock after all rows were locked. Due times are computed
	// from Now.
	Now time.Time

	requests                      map[uuid.UUID]*callstate.Request
	calls                         map[uuid.UUID]*callstate.Call
	privacy                       map[uuid.UUID]privacySettings
	links                         *recordings.Links
	requestsToSave, chargesToSave []*callstate.Request
	callsToSave                   []*callstate.Call
	inboundCharges                map[uuid.UUID]inboundCharge // the charges that arrived before their call
	keptCharges, usedCharges      []inboundCharge
	events                        pgx.Batch
}

// inboundCharge is the charge of an inbound call. WorkspaceID is nil if an earlier version stored
// the charge.
type inboundCharge struct {
	CallID      uuid.UUID   `db:"call_id"`
	WorkspaceID *uuid.UUID  `db:"workspace_id"`
	Credits     money.Micro `db:"credits_micro"`
}

const readInboundCharges = `
SELECT call_id, workspace_id, credits_micro FROM inbound_charges
WHERE call_id = ANY (@ids::uuid[]) ORDER BY call_id FOR UPDATE`

const keepInboundCharge = `
INSERT INTO inbound_charges (call_id, workspace_id, credits_micro) VALUES (@call_id, @workspace_id, @credits_micro)
ON CONFLICT (call_id) DO NOTHING`

const deleteInboundCharge = `DELETE FROM inbound_charges WHERE call_id = @call_id`

const deleteInboundCharges = `DELETE FROM inbound_charges WHERE created_at < @at`

// DeleteInboundCharges deletes the charges that arrived before at and whose call did not arrive.
func (s *Store) DeleteInboundCharges(ctx context.Context, at time.Time) error {
	if _, err := s.pool.Exec(ctx, deleteInboundCharges, pg.Args{"at": at}); err != nil {
		return fmt.Errorf("delete old charges of inbound calls: %w", err)
	}
	return nil
}

// forceIndexes disables sequential scans. Otherwise Postgres could use a plan that it made while
// the tables were empty, and would read whole tables.
const forceIndexes = `SELECT set_config('enable_seqscan', 'off', true)`

// Dial events and wallet events of one request have the same key, and therefore the same partition
// number. All transactions lock first partitions, then requests, then calls, so they cannot
// deadlock.
const lockPartitions = `
SELECT pg_advisory_xact_lock(hashtextextended('partition', partition.number))
FROM (SELECT DISTINCT number FROM unnest(@partitions::bigint[]) number ORDER BY number) partition`

const lockRequests = `SELECT ` + requestColumns +
	` FROM call_requests WHERE id = ANY (@ids::uuid[]) ORDER BY id FOR UPDATE`

const lockCalls = `SELECT ` + foldedCallColumns + ` FROM calls WHERE id = ANY (@ids::uuid[]) ORDER BY id FOR UPDATE`

const lockCallsOfRequests = `SELECT ` + foldedCallColumns +
	` FROM calls WHERE call_request_id = ANY (@ids::uuid[]) ORDER BY id FOR UPDATE`

// privacySettings states whether a workspace stores and shows transcripts and recordings.
type privacySettings struct {
	WorkspaceID uuid.UUID `db:"id"`
	Transcripts bool      `db:"transcripts"`
	Recordings  bool      `db:"recordings"`
}

const privacyOfWorkspaces = `
SELECT id, transcripts, recordings FROM workspaces WHERE id = ANY (@ids::uuid[]) AND (transcripts OR recordings)`

func collectPrivacy(rows pgx.Rows) (map[uuid.UUID]privacySettings, error) {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[privacySettings])
	byID := make(map[uuid.UUID]privacySettings, len(found))
	for _, s := range found {
		byID[s.WorkspaceID] = s
	}
	return byID, err
}

// Lock locks the partitions of the events and then locks and reads the rows. Until the transaction
// ends, no other Fold with one of these partitions can run.
func (s *Store) Lock(ctx context.Context, tx pgx.Tx, w Wanted) (*Fold, error) {
	f := &Fold{requests: map[uuid.UUID]*callstate.Request{}, calls: map[uuid.UUID]*callstate.Call{}, links: s.links,
		inboundCharges: map[uuid.UUID]inboundCharge{}}
	partitions := make([]int64, len(w.Partitions))
	for i, n := range w.Partitions {
		partitions[i] = int64(n)
	}
	var batch pgx.Batch
	batch.Queue(forceIndexes)
	batch.Queue(lockPartitions, pg.Args{"partitions": partitions})
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
	if len(w.InboundCalls) > 0 {
		batch.Queue(readInboundCharges, pg.Args{"ids": w.InboundCalls}).Query(f.collectInboundCharges)
	}
	if len(w.Workspaces) > 0 {
		batch.Queue(privacyOfWorkspaces, pg.Args{"ids": w.Workspaces}).Query(func(rows pgx.Rows) (err error) {
			f.privacy, err = collectPrivacy(rows)
			return err
		})
	}
	batch.Queue(dbNow).QueryRow(func(row pgx.Row) error { return row.Scan(&f.Now) })
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("lock %d requests and %d calls: %w", len(w.Requests), len(w.Calls), err)
	}
	return f, nil
}

// Request returns a locked request, or nil if the request does not exist.
func (f *Fold) Request(id uuid.UUID) *callstate.Request { return f.requests[id] }

// Call returns a locked call, or a new call that was added by SaveCall. It returns nil if the call
// is unknown.
func (f *Fold) Call(id uuid.UUID) *callstate.Call { return f.calls[id] }

// CallOfRequest returns the newest call of a request, or nil if no call of the request is known.
func (f *Fold) CallOfRequest(requestID uuid.UUID) (newest *callstate.Call) {
	for _, c := range f.calls {
		if c.CallRequestID != nil && *c.CallRequestID == requestID && (newest == nil ||
			slices.Compare(c.ID[:], newest.ID[:]) > 0) {
			newest = c
		}
	}
	return newest
}

func (f *Fold) collectInboundCharges(rows pgx.Rows) error {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[inboundCharge])
	for _, charge := range found {
		f.inboundCharges[charge.CallID] = charge
	}
	return err
}

// KeepInboundCharge stores the charge of an inbound call that is not known yet. Dial events and
// wallet events of one inbound call have the same key, so no other Fold stores the call at the same
// time.
func (f *Fold) KeepInboundCharge(callID, workspaceID uuid.UUID, credits money.Micro) {
	charge := inboundCharge{CallID: callID, WorkspaceID: &workspaceID, Credits: credits}
	f.keptCharges = append(f.keptCharges, charge)
}

// TakeInboundCharge returns the charge of a new inbound call, and deletes it from the stored
// charges. It returns nil if no charge has arrived, or only a charge of another workspace.
// Wanted.InboundCalls must contain the call.
func (f *Fold) TakeInboundCharge(callID, workspaceID uuid.UUID) *money.Micro {
	charge, arrived := f.inboundCharges[callID]
	if !arrived || charge.WorkspaceID != nil && *charge.WorkspaceID != workspaceID {
		return nil
	}
	f.usedCharges = append(f.usedCharges, charge)
	return &charge.Credits
}

// Transcribed reports whether the workspace stores transcripts. Wanted.Workspaces must contain the
// workspace.
func (f *Fold) Transcribed(workspaceID uuid.UUID) bool { return f.privacy[workspaceID].Transcripts }

// SaveRequest adds a changed request to the rows that Write writes.
func (f *Fold) SaveRequest(req *callstate.Request) {
	req.UpdatedAt = f.Now
	if !slices.Contains(f.requestsToSave, req) {
		f.requestsToSave = append(f.requestsToSave, req)
	}
}

// SaveEnded adds a request that has just ended. If the request ended without a call, SaveEnded also
// adds the public event of the request.
func (f *Fold) SaveEnded(ctx context.Context, req *callstate.Request) error {
	f.SaveRequest(req)
	if req.EndEvent() == "" {
		return nil
	}
	event, err := endEvent(req, f.Now)
	if err != nil {
		return err
	}
	return outbox.Queue(ctx, &f.events, event)
}

// SaveCanceled adds a request that the dialer's event `withdrawn` canceled. It also adds the event
// of the request for call-requests.v1 and the public event. It is used if the HTTP cancel failed
// after the dialer withdrew the request.
func (f *Fold) SaveCanceled(ctx context.Context, req *callstate.Request, at time.Time) error {
	if err := outbox.Queue(ctx, &f.events, requestEvent(req, req.WithdrawnEvent(at))); err != nil {
		return err
	}
	return f.SaveEnded(ctx, req)
}

// SaveCharge adds a request whose charge is now known. Write does not change updated_at of this
// request, because customers do not see the charge in a request.
func (f *Fold) SaveCharge(req *callstate.Request) {
	if !slices.Contains(f.chargesToSave, req) {
		f.chargesToSave = append(f.chargesToSave, req)
	}
}

// SaveCall adds a changed or new call. Unless event is "", it also adds the public event for
// call-events.v1. It also adds the opt-in events that are due. Wanted.Workspaces must contain the
// workspace of a call that has a recording.
func (f *Fold) SaveCall(ctx context.Context, c *callstate.Call, event openapi.EventType) error {
	f.calls[c.ID] = c
	if !slices.Contains(f.callsToSave, c) {
		f.callsToSave = append(f.callsToSave, c)
	}
	if f.privacy[c.WorkspaceID].Recordings {
		signLink(ctx, f.links, c)
	}
	return queueEvents(ctx, &f.events, c, event, f.Now)
}

// signLink sets the link to the recording of the call. If the link cannot be signed, the events of
// the call have no link, because they must not wait for it.
func signLink(ctx context.Context, links *recordings.Links, c *callstate.Call) {
	c.RecordingURL = ""
	if links == nil || c.RecordingKey == nil {
		return
	}
	link, err := links.Link(ctx, *c.RecordingKey)
	if err != nil {
		slog.ErrorContext(ctx, "link to a recording not signed", "call_id", c.ID, "error", err)
	}
	c.RecordingURL = link
}

// queueEvents adds the public event to the batch, unless event is "", and then the opt-in events
// that are due. It changes the call, so it must run before the call is saved.
func queueEvents(
	ctx context.Context,
	batch *pgx.Batch,
	c *callstate.Call,
	event openapi.EventType,
	at time.Time,
) error {
	if err := queueEvent(ctx, batch, c, event, at); err != nil {
		return err
	}
	for event = c.NextOptIn(); event != ""; event = c.NextOptIn() {
		if err := queueEvent(ctx, batch, c, event, at); err != nil {
			return err
		}
	}
	return nil
}

func queueEvent(ctx context.Context, batch *pgx.Batch, c *callstate.Call, event openapi.EventType, at time.Time) error {
	if event == "" {
		return nil
	}
	message, err := c.Event(event, at)
	if err != nil {
		return err
	}
	return outbox.Queue(ctx, batch, outbox.Event{
		ID: callstate.EventID(c.ID, event), Topic: kafka.CallEvents, Key: c.ID.String(), WorkspaceID: c.WorkspaceID,
		Message: message,
	})
}

// SaveLowBalance adds the public event wallet.low_balance.
func (f *Fold) SaveLowBalance(ctx context.Context, low callstate.LowBalance) error {
	message, err := low.PublicEvent()
	if err != nil {
		return err
	}
	return outbox.Queue(ctx, &f.events, outbox.Event{
		ID: low.EventID, Topic: kafka.CallEvents, Key: low.WorkspaceID.String(), WorkspaceID: low.WorkspaceID,
		Message: message,
	})
}

// Write writes all changed rows and the events. Write must be the last call on a Fold.
func (f *Fold) Write(ctx context.Context, tx pgx.Tx) error {
	var batch pgx.Batch
	for _, req := range f.requestsToSave {
		batch.Queue(saveRequest, pg.Args(saveArgs(req)))
	}
	for _, req := range f.chargesToSave {
		batch.Queue(saveCharge, pg.Args{"id": req.ID, "charge_settled": req.ChargeSettled, "credits_micro": req.Credits})
	}
	for _, c := range f.callsToSave {
		batch.Queue(saveCall, pg.Args(callArgs(c)))
	}
	for _, charge := range f.keptCharges {
		batch.Queue(keepInboundCharge, pg.Args{
			"call_id": charge.CallID, "workspace_id": charge.WorkspaceID, "credits_micro": charge.Credits,
		})
	}
	for _, charge := range f.usedCharges {
		batch.Queue(deleteInboundCharge, pg.Args{"call_id": charge.CallID})
	}
	batch.QueuedQueries = append(batch.QueuedQueries, f.events.QueuedQueries...)
	if batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("write %d requests and %d calls: %w", len(f.requestsToSave), len(f.callsToSave), err)
	}
	return nil
}

// HasEvents reports whether Write puts events into the outbox.
func (f *Fold) HasEvents() bool { return f.events.Len() > 0 }
