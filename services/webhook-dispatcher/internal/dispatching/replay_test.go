package dispatching_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

func (r *rig) replayFailed(sub uuid.UUID, want int) {
	r.t.Helper()
	done, err := r.store.Replay(r.t.Context(), r.workspace, sub, store.Replay{Status: delivery.Failed, Since: time.Unix(0, 0), Limit: 100})
	if err != nil || done.Count != want {
		r.t.Fatalf("Replay = %+v, %v, want %d", done, err, want)
	}
}

func TestReplay_IsTheSameDeliveryWithFiveFreshAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, always(500))
	id, secret := r.subscribe(recv.URL)
	d := r.dispatch(config())
	ev := r.event(uuid.New(), 1, "call.busy")
	r.ingest(ev)
	d.Wake()
	r.awaitStatus(id, ev.ID, delivery.Failed)

	r.replayFailed(id, 1)
	d.Wake()
	r.awaitStatus(id, ev.ID, delivery.Failed)
	recv.answering(nil)
	r.replayFailed(id, 1)
	d.Wake()
	r.awaitStatus(id, ev.ID, delivery.Delivered)

	all := recv.all()
	if len(all) != 11 {
		t.Fatalf("%d requests, want five, five, and the one that arrived", len(all))
	}
	for i, g := range all {
		if err := verify(g, secret); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		if want := strconv.Itoa(i%5 + 1); g.header.Get("X-Service-Delivery-Attempt") != want || g.delivery() != all[0].delivery() ||
			g.header.Get("X-Service-Event-Id") != ev.ID.String() || string(g.body) != string(ev.Body) {
			t.Errorf("request %d = %v, want attempt %s of the same delivery with the same bytes", i, g.header, want)
		}
	}
	if attempts, err := r.store.Attempts(t.Context(), delivery.ID(id, ev.ID)); err != nil || len(attempts) != 11 || attempts[10].Replay != 2 || attempts[10].No != 1 {
		t.Errorf("history = %+v, %v, want eleven attempts, the last of replay 2", attempts, err)
	}
	r.ingest(ev) // the record comes again
	d.Wake()
	if n := r.count(`SELECT count(*) FROM webhook_queue`); n != 0 {
		t.Errorf("%d rows of open work, want none: an event read again after its replay stays done", n)
	}
}

func TestReplay_WhileTheWorkspaceIsSuspendedIsHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, always(500))
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(config())
	ev := r.event(uuid.New(), 1, "call.busy")
	r.ingest(ev)
	d.Wake()
	r.awaitStatus(id, ev.ID, delivery.Failed)
	for version, suspended := range []bool{true, false} {
		if err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
			_, err := r.store.SetWorkspace(t.Context(), tx, store.Workspace{ID: r.workspace, Version: int64(version + 1), Suspended: suspended, Webhooks: true})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if suspended {
			recv.answering(nil)
			r.replayFailed(id, 1)
			r.awaitStatus(id, ev.ID, delivery.Held)
		}
	}
	r.awaitStatus(id, ev.ID, delivery.Delivered)
}
