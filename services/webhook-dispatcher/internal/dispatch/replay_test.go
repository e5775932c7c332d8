package dispatch_test

import (
	"encoding/json"
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

// One process is killed after the commit of a replay, another one while it sends the replayed
// deliveries. Only the requests in flight may be sent twice.
func TestReplayPeriod_CrashNeitherLosesNorRepeatsADelivery(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	calls := make([]uuid.UUID, 20)
	var events []deliveries.Event
	for i := range calls {
		calls[i] = uuid.New()
		events = append(events, r.event(calls[i], 2, "call.answered"), r.event(calls[i], 1, "call.ringing"))
	}
	r.ingest(events...)
	first := r.dispatch(config())
	first.Wake()
	recv.await(t, len(events))
	r.awaitEmptyQueue()
	first.stopAndWait()

	count, err := r.store.ReplayPeriod(t.Context(), r.workspace, id, store.Period{Until: time.Now().AddDate(1, 0, 0)})
	if err != nil {
		t.Fatalf("ReplayPeriod: %v", err)
	}
	wantEqual(t, "replayed deliveries", count, len(events))
	inFlight := map[string]bool{} // the deliveries that were claimed by the killed process
	for _, w := range r.claim(claimFirst(id)) {
		inFlight[w.DeliveryID.String()] = true
	}
	for _, call := range calls {
		r.ingest(r.event(call, 3, "call.completed"))
	}
	second := r.dispatch(config())
	_ = second // the second dispatcher must find the replayed deliveries although Wake is not called
	all := recv.await(t, len(events)+len(events)+len(calls))[len(events):]
	r.awaitEmptyQueue()
	sent, last := map[string]int{}, map[string]int{}
	for _, g := range all {
		sent[g.deliveryID()]++
		var data struct {
			Call string `json:"call_id"`
		}
		if err := json.Unmarshal(g.Data, &data); err != nil {
			t.Fatal(err)
		}
		if g.Sequence != last[data.Call]+1 {
			t.Errorf("call %s: event %d arrived after event %d", data.Call, g.Sequence, last[data.Call])
		}
		last[data.Call] = g.Sequence
		want := "1"
		if inFlight[g.deliveryID()] {
			want = "2"
		}
		wantEqual(t, "attempt", g.header.Get("X-Service-Delivery-Attempt"), want)
	}
	for delivery, n := range sent {
		wantEqual(t, "requests of delivery "+delivery, n, 1)
	}
	wantEqual(t, "sent deliveries", len(sent), len(events)+len(calls))
}

func TestReplay_DeliveriesWaitWhileTheWorkspaceIsSuspended(t *testing.T) {
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
