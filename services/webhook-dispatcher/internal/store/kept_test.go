package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// Whoever pauses what he makes has no end of subscriptions otherwise, and each event leaves a row for every one.
func TestCreate_ThePausedAreBoundedToo(t *testing.T) {
	t.Parallel()
	r, ws := newRig(t), uuid.New()
	var last uuid.UUID
	for range subscription.MaxKept {
		last = r.subscribe(ws, "call.completed")
		if err := r.setStatus(ws, last, subscription.Paused); err != nil {
			t.Fatal(err)
		}
	}
	one := subscription.Subscription{ID: uuid.Must(uuid.NewV7()), WorkspaceID: ws, Name: "a", URL: "https://example.com/", Events: []openapi.EventType{"call.completed"}}
	err := r.store.Create(t.Context(), one, "whsec_x")
	var fault *apierr.Error
	if !errors.As(err, &fault) {
		t.Fatalf("Create of one more than %d = %v, want an apierr.Error", subscription.MaxKept, err)
	}
	wantEqual(t, "code", fault.Code, "subscription_limit_reached")
	if err := r.setStatus(ws, last, subscription.Active); err != nil {
		t.Errorf("resume at the limit: %v", err)
	}
	if err := r.store.Delete(t.Context(), ws, last); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Create(t.Context(), one, "whsec_x"); err != nil {
		t.Errorf("in place of a deleted one: %v", err)
	}
}

// A queue of days is not held within the time of other statements.
func TestChange_MayTakeItsTime(t *testing.T) {
	t.Parallel()
	r, ws := newRig(t), uuid.New()
	sub := r.subscribe(ws, "call.completed")
	r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
	hasty := r.pool.Config().Copy()
	hasty.ConnConfig.RuntimeParams["statement_timeout"] = "200"
	pool, err := pgxpool.NewWithConfig(t.Context(), hasty)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	slow, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := slow.Exec(t.Context(), `SELECT FROM webhook_queue FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	changed := make(chan error, 1)
	go func() {
		paused := subscription.Paused
		_, err := store.New(pool, box(t)).Change(context.WithoutCancel(t.Context()), ws, sub, store.Change{Status: &paused})
		changed <- err
	}()
	const waits = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '500 ms'`
	for r.count(waits) == 0 {
		select {
		case err := <-changed:
			t.Fatalf("ended early: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := slow.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-changed; err != nil {
		t.Errorf("pause of a long queue: %v", err)
	}
}
