package dispatch_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

func (r *fixture) replayFailed(sub uuid.UUID, want int) {
	r.t.Helper()
	done, err := r.store.Replay(r.t.Context(), r.workspace, sub, store.Replay{Status: deliveries.Failed, Since: time.Unix(0, 0), Limit: 100})
	if err != nil {
		r.t.Fatalf("Replay: %v", err)
	}
	wantEqual(r.t, "replayed deliveries", done.Count, want)
}

func TestReplay_SendsTheSameDeliveryWithFiveNewAttempts(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, always(500))
	id, secret := r.subscribe(recv.URL)
	d := r.dispatch(config())
	ev := r.event(uuid.New(), 1, "call.busy")
	r.ingest(ev)
	d.Wake()
	r.awaitStatus(id, ev.ID, deliveries.Failed)

	r.replayFailed(id, 1)
	d.Wake()
	r.awaitStatus(id, ev.ID, deliveries.Failed)
	recv.respondWith(nil)
	r.replayFailed(id, 1)
	d.Wake()
	r.awaitStatus(id, ev.ID, deliveries.Delivered)

	all := recv.all()
	if len(all) != 11 {
		t.Fatalf("requests = %d, want 11: five, five, and the one that succeeded", len(all))
	}
	for i, g := range all {
		if err := verifySignature(g, secret); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		wantEqual(t, "attempt", g.header.Get("X-Service-Delivery-Attempt"), strconv.Itoa(i%5+1))
		wantEqual(t, "delivery id", g.deliveryID(), all[0].deliveryID())
		wantEqual(t, "event id", g.header.Get("X-Service-Event-Id"), ev.ID.String())
		wantEqual(t, "body", string(g.body), string(ev.Body))
	}
	attempts, err := r.store.Attempts(t.Context(), deliveries.ID(id, ev.ID, ev.CreatedAt))
	if err != nil {
		t.Fatalf("Attempts: %v", err)
	}
	if len(attempts) != 11 {
		t.Fatalf("attempts in history = %d, want 11", len(attempts))
	}
	wantEqual(t, "replay of the last attempt", attempts[10].Replay, 2)
	wantEqual(t, "number of the last attempt", attempts[10].No, 1)
	r.ingest(ev) // Kafka can deliver the record of an event twice
	d.Wake()
	if n := r.count(`SELECT count(*) FROM delivery_queue`); n != 0 {
		t.Errorf("queue rows after a replayed event was read again = %d, want 0", n)
	}
}

func TestReplay_HoldsDeliveriesWhileTheWorkspaceIsSuspended(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, always(500))
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(config())
	ev := r.event(uuid.New(), 1, "call.busy")
	r.ingest(ev)
	d.Wake()
	r.awaitStatus(id, ev.ID, deliveries.Failed)
	for version, suspended := range []bool{true, false} {
		if err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
			workspace := store.Workspace{ID: r.workspace, Version: int64(version + 1), Suspended: suspended, Webhooks: true}
			_, err := r.store.SetWorkspace(t.Context(), tx, workspace)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if suspended {
			recv.respondWith(nil)
			r.replayFailed(id, 1)
			r.awaitStatus(id, ev.ID, deliveries.Held)
		}
	}
	r.awaitStatus(id, ev.ID, deliveries.Delivered)
}
