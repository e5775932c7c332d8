package consumer_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const (
	secret  = "Xylophone"
	holding = `convert_from(body, 'UTF8') LIKE '%Xylophone%'`
)

func personalEvent(call, workspace uuid.UUID, sequence int32, kind string) (*eventv1.CallEvent, uuid.UUID) {
	f, id := callEvent(call, workspace, sequence, kind)
	f.GetPublic().Body = fmt.Appendf(nil, `{"id":%q,"type":%q,"sequence":%d,"data":{"call_id":%q,"outcome":"interested","summary":{"customer_name":"Xylophone"},"transcript":{"turns":["Xylophone"]}}}`,
		id, kind, sequence, call)
	return f, id
}

func erased(call, workspace, erasure uuid.UUID) *eventv1.CallEvent {
	message := &eventv1.BodiesErased{ErasureId: erasure.String()}
	for _, kind := range []string{"call.ringing", "call.answered", "call.completed"} {
		message.EventIds = append(message.EventIds, uuid.NewSHA1(call, []byte(kind)).String())
	}
	return &eventv1.CallEvent{CallId: call.String(), WorkspaceId: workspace.String(), Event: &eventv1.CallEvent_Erased{Erased: message}}
}

func (h *fixture) claimAll(sub uuid.UUID, want int) []deliveries.Work {
	h.t.Helper()
	claimed, err := h.store.ClaimDue(h.t.Context(), store.Claim{
		Quotas: []store.Quota{{SubscriptionID: sub, Total: 10, Retries: 5}}, Lease: time.Minute, Attempts: 5,
	})
	if err != nil {
		h.t.Fatalf("ClaimDue: %v", err)
	}
	if len(claimed.Work) != want {
		h.t.Fatalf("claimed deliveries = %d, want %d", len(claimed.Work), want)
	}
	return claimed.Work
}

// emptyBodies deletes the bodies of erased events that no queued delivery needs, and returns their
// number.
func (h *fixture) emptyBodies() int {
	h.t.Helper()
	n, err := h.store.EmptyBodies(h.t.Context(), 10)
	if err != nil {
		h.t.Fatalf("EmptyBodies: %v", err)
	}
	return n
}

// complete stores a result whose response repeats personal data of the request.
func (h *fixture) complete(work deliveries.Work, outcome deliveries.Outcome) {
	h.t.Helper()
	result := deliveries.Result{
		DeliveryID: work.DeliveryID, Attempt: work.Attempt, Replay: work.Replay, Outcome: outcome, Delay: time.Hour,
		Response: deliveries.Response{Code: 500, Failure: deliveries.BadStatus, Excerpt: "you said " + secret, At: time.Now()},
	}
	done, err := h.store.Complete(h.t.Context(), []deliveries.Result{result})
	if err != nil {
		h.t.Fatalf("Complete: %v", err)
	}
	wantEqual(h.t, "settled results", done.Settled, 1)
}

// The erasure of a call waits for a delivery that another transaction has locked. That transaction
// can itself wait for the event stream of the workspace. Therefore the erasure must not lock this
// event stream while it waits.
func TestErasure_DoesNotLockTheEventStreamWhileItWaits(t *testing.T) {
	t.Parallel()
	h, ws, call := newDatabaseFixture(t), uuid.New(), uuid.New()
	h.subscribe(ws, "call.ringing")
	ingest := func(event deliveries.Event) error {
		return pg.InTx(t.Context(), h.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '5s'`); err != nil {
				return err
			}
			_, err := h.store.Ingest(t.Context(), tx, event)
			return err
		})
	}
	newEvent := func(of uuid.UUID) deliveries.Event {
		return deliveries.Event{ID: uuid.New(), WorkspaceID: ws, ObjectID: &of, Type: "call.ringing", Sequence: 1,
			Body: []byte("{}"), CreatedAt: time.Now()}
	}
	if err := ingest(newEvent(call)); err != nil {
		t.Fatalf("Ingest: %v", err)
	}
	result, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = result.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := result.Exec(t.Context(), `SELECT FROM delivery_queue FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	// Both records are in one batch, because they are published before the consumer starts.
	f, id := callEvent(call, ws, 2, "call.completed")
	h.publish(kafka.CallEvents, id, call.String(), f)
	h.publish(kafka.CallEvents, uuid.New(), call.String(), erased(call, ws, uuid.New()))
	h.consume()
	h.await(`SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%delivery_queue%'`, 1)
	if err := ingest(newEvent(uuid.New())); err != nil {
		t.Errorf("Ingest of another event while the erasure waits: %v", err)
	}
	if err := result.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.await(`SELECT count(*) FROM outbox WHERE topic = 'erasure-reports.v1'`, 1)
	h.await(`SELECT count(*) FROM events`, 3)
}

// The first delivery has ended, the second delivery waits for a retry, and the third delivery is
// being sent. Another call is not erased.
func TestErasure_QueuedEventsAreSentWithoutPersonalData(t *testing.T) {
	t.Parallel()
	h, ws, call, other, erasure := newFixture(t), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	sub := h.subscribe(ws, "call.ringing", "call.answered", "call.completed")
	ids := map[string]uuid.UUID{}
	var underWay deliveries.Work
	for n, kind := range []string{"call.ringing", "call.answered", "call.completed"} {
		f, id := personalEvent(call, ws, int32(n+1), kind)
		h.publish(kafka.CallEvents, id, call.String(), f)
		h.await(`SELECT count(*) FROM delivery_queue WHERE event_id = $1`, 1, id)
		ids[kind] = id
		work := h.claimAll(sub, 1)
		switch kind {
		case "call.ringing":
			h.complete(work[0], deliveries.OutcomeFailed)
		case "call.answered":
			h.complete(work[0], deliveries.OutcomeRetry)
		case "call.completed":
			underWay = work[0]
		}
	}
	f, id := personalEvent(other, ws, 1, "call.completed")
	h.publish(kafka.CallEvents, id, other.String(), f)
	h.await(`SELECT count(*) FROM events WHERE `+holding, 4)
	for range 2 { // the second record of the same erasure changes nothing
		h.publish(kafka.CallEvents, uuid.New(), call.String(), erased(call, ws, erasure))
	}
	h.await(`SELECT count(*) FROM outbox WHERE topic = 'erasure-reports.v1'`, 2)
	h.await(`SELECT count(*) FROM events WHERE `+holding, 1)
	h.await(`SELECT count(*) FROM events WHERE call_id = $1 AND `+holding, 1, other)
	h.await(`SELECT count(*) FROM events WHERE id = $1 AND body = '' AND erased_at IS NOT NULL`, 1, ids["call.ringing"])
	h.await(`SELECT count(*) FROM events WHERE call_id = $1 AND body <> '' AND erased_at IS NOT NULL`, 2, call)
	h.complete(underWay, deliveries.OutcomeDelivered)
	h.await(`SELECT count(*) FROM attempts`, 3)
	h.await(`SELECT count(*) FROM attempts WHERE excerpt IS NOT NULL`, 0)
	h.checkErased(sub, ws, call, erasure)

	if _, err := h.pool.Exec(t.Context(), `UPDATE delivery_queue SET due_at = now()`); err != nil {
		t.Fatal(err)
	}
	for _, work := range h.claimAll(sub, 2) {
		wantEqual(t, "body is set", len(work.Body) > 0, true)
		wantEqual(t, "body has personal data", bytes.Contains(work.Body, []byte(secret)), *work.CallID != call)
		// the body of the delivery that was being sent during the erasure may be deleted now
		if n := h.emptyBodies(); n > 1 {
			t.Errorf("emptied bodies = %d, want at most 1", n)
		}
		h.complete(work, deliveries.OutcomeDelivered)
	}
	wantEqual(t, "emptied bodies after the retry", h.emptyBodies(), 1)
	h.await(`SELECT count(*) FROM events WHERE body <> ''`, 1)
	h.await(`SELECT count(*) FROM attempts WHERE excerpt IS NOT NULL`, 1)
}

func (h *fixture) checkErased(sub, ws, call, erasure uuid.UUID) {
	h.t.Helper()
	rows, err := h.store.Deliveries(h.t.Context(), ws, sub, store.Filter{CallID: &call}, page.Request{Limit: 10})
	if err != nil {
		h.t.Fatalf("Deliveries: %v", err)
	}
	wantEqual(h.t, "deliveries of the call", len(rows), 3)
	for _, row := range rows {
		if row.ErasedAt == nil {
			h.t.Errorf("ErasedAt of the delivery of %s = nil, want a time", row.EventType)
		}
	}
	again, err := h.store.Replay(h.t.Context(), ws, sub, store.Replay{CallID: call, Limit: 10})
	if err != nil {
		h.t.Fatalf("Replay: %v", err)
	}
	wantEqual(h.t, "replayed deliveries of an erased call", again.Count, 0)
	var report eventv1.ErasureReport
	var payload []byte
	if err := h.pool.QueryRow(h.t.Context(), `SELECT payload FROM outbox WHERE topic = 'erasure-reports.v1' LIMIT 1`).Scan(&payload); err != nil {
		h.t.Fatal(err)
	}
	if err := proto.Unmarshal(payload, &report); err != nil {
		h.t.Fatalf("decode the erasure report: %v", err)
	}
	wantEqual(h.t, "erasure_id of the report", report.GetErasureId(), erasure.String())
	wantEqual(h.t, "service of the report", report.GetService(), "webhook-dispatcher")
	wantEqual(h.t, "ref of the report", report.GetStepDone().GetRef(), call.String())
}

// The events and the erasure are published before the consumer starts, so all of them arrive in one
// batch.
func TestErasure_ErasesTheBodiesOfEventsInTheSameBatch(t *testing.T) {
	t.Parallel()
	h, ws, call, other := newDatabaseFixture(t), uuid.New(), uuid.New(), uuid.New()
	sub := h.subscribe(ws, "call.completed")
	for _, id := range []uuid.UUID{call, other} {
		f, event := personalEvent(id, ws, 1, "call.completed")
		h.publish(kafka.CallEvents, event, "one partition", f)
	}
	h.publish(kafka.CallEvents, uuid.New(), "one partition", erased(call, ws, uuid.New()))
	h.consume()
	h.await(`SELECT count(*) FROM outbox WHERE topic = 'erasure-reports.v1'`, 1)
	h.await(`SELECT count(*) FROM events WHERE `+holding, 1)
	sent := map[uuid.UUID][]byte{}
	for _, w := range h.claimAll(sub, 2) {
		sent[*w.CallID] = w.Body
	}
	wantEqual(t, "event of the erased call is sent", len(sent[call]) > 0, true)
	wantEqual(t, "event of the erased call has personal data", bytes.Contains(sent[call], []byte(secret)), false)
	wantEqual(t, "event of the other call has personal data", bytes.Contains(sent[other], []byte(secret)), true)
}

// The event is published after the erasure of its call. Its body must be deleted when no queued
// delivery needs the body.
func TestErasure_BodyOfALaterEventIsDeletedAfterItsDelivery(t *testing.T) {
	t.Parallel()
	h, ws, call := newFixture(t), uuid.New(), uuid.New()
	sub := h.subscribe(ws, "call.completed")
	f, id := callEvent(call, ws, 1, "call.completed")
	f.GetPublic().Erased = true
	h.publish(kafka.CallEvents, id, call.String(), f)
	h.await(`SELECT count(*) FROM delivery_queue`, 1)
	wantEqual(t, "emptied bodies before the delivery", h.emptyBodies(), 0)
	h.complete(h.claimAll(sub, 1)[0], deliveries.OutcomeDelivered)
	wantEqual(t, "emptied bodies after the delivery", h.emptyBodies(), 1)
	h.await(`SELECT count(*) FROM attempts WHERE excerpt IS NOT NULL`, 0)
}
