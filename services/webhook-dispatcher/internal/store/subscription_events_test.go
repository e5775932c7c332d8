package store_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

const (
	failing = openapi.EventTypeWebhookSubscriptionFailing
	failed  = openapi.EventTypeWebhookSubscriptionFailed
)

var strictRule = subscriptions.FailureRule{Failures: 20, Duration: time.Minute, Exhausted: 3}

// fail changes the health of a subscription so that it meets strictRule.
func (r *fixture) fail(id uuid.UUID) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), `
		UPDATE subscription_health
		SET consecutive_failures = 20, failures = 20, exhausted = 3, failing_since = now() - interval '1 hour'
		WHERE subscription_id = $1`, id); err != nil {
		r.t.Fatal(err)
	}
}

// received returns the type and the sequence of each event that is queued for a subscription.
func (r *fixture) received(id uuid.UUID) []string {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), `
		SELECT q.event_type || ' ' || q.sequence || ' of ' || q.call_id FROM delivery_queue q WHERE q.subscription_id = $1
		ORDER BY q.call_id, q.sequence`, id)
	if err != nil {
		r.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func TestDisable_IsReportedToOtherSubscriptionsOfTheWorkspace(t *testing.T) {
	t.Parallel()
	r, ws, other := newFixture(t), uuid.New(), uuid.New()
	broken := r.subscribe(ws, "call.completed", failing, failed)
	both, onlyFailed := r.subscribe(ws, failing, failed), r.subscribe(ws, failed)
	calls, foreign := r.subscribe(ws, "call.completed"), r.subscribe(other, failing, failed)
	r.fail(broken)
	for i, want := range []bool{true, false} {
		first, err := r.store.MarkWarned(t.Context(), broken)
		if err != nil {
			t.Fatalf("MarkWarned: %v", err)
		}
		if first != want {
			t.Errorf("MarkWarned call %d = %v, want %v", i+1, first, want)
		}
	}
	for i, want := range []bool{true, false} {
		_, disabled, err := r.store.Disable(t.Context(), broken, strictRule)
		if err != nil {
			t.Fatalf("Disable: %v", err)
		}
		if disabled != want {
			t.Errorf("Disable call %d = %v, want %v", i+1, disabled, want)
		}
	}
	id := " of " + broken.String()
	first, second := string(failing)+" 1"+id, string(failed)+" 2"+id
	for subscription, want := range map[uuid.UUID][]string{
		broken: nil, both: {first, second}, onlyFailed: {second}, calls: nil, foreign: nil,
	} {
		if got := r.received(subscription); !slices.Equal(got, want) {
			t.Errorf("events of %s = %q, want %q", subscription, got, want)
		}
	}
	var body []byte
	if err := r.pool.QueryRow(t.Context(), `SELECT body FROM events WHERE type = $1`, failed).Scan(&body); err != nil {
		t.Fatal(err)
	}
	var event openapi.SubscriptionEvent
	if err := json.Unmarshal(body, &event); err != nil {
		t.Fatal(err)
	}
	sub, err := r.store.Subscription(t.Context(), ws, broken)
	if err != nil {
		t.Fatal(err)
	}
	want, got := jsonOf(t, sub.View()), jsonOf(t, event.Data)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("data of webhook_subscription.failed differs from GET (-get +event):\n%s", diff)
	}
	if event.Data.Status != "failed" {
		t.Errorf("status in the event = %s, want failed", event.Data.Status)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A replica can find that the whole rule is met before any replica has recorded a warning.
func TestDisable_StoresTheFailingEventBeforeTheFailedEvent(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	broken, both := r.subscribe(ws, "call.completed"), r.subscribe(ws, failing, failed)
	r.fail(broken)
	if _, _, err := r.store.Disable(t.Context(), broken, strictRule); err != nil {
		t.Fatalf("Disable: %v", err)
	}
	id := " of " + broken.String()
	want := []string{string(failing) + " 1" + id, string(failed) + " 2" + id}
	if got := r.received(both); !slices.Equal(got, want) {
		t.Errorf("events = %q, want %q", got, want)
	}
}

// Four replicas disable the four subscriptions of a workspace at the same time. Each subscription
// receives the events of the other subscriptions, so every transaction locks all four
// subscriptions.
func TestDisable_ConcurrentReplicasStoreEachEventOnce(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	var subs []uuid.UUID
	for range 4 {
		subs = append(subs, r.subscribe(ws, failing, failed))
	}
	for _, sub := range subs {
		r.fail(sub)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range subs {
				if _, _, err := r.store.Disable(context.WithoutCancel(t.Context()), subs[(i+j)%4], strictRule); err != nil {
					t.Errorf("Disable: %v", err)
				}
			}
		})
	}
	all.Wait()
	wantEqual(t, "events", r.count(`SELECT count(*) FROM events`), 8)
	wantEqual(t, "deliveries", r.count(`SELECT count(*) FROM deliveries`), 8*3)
}

// A subscription is resumed and fails again. Its two further events must continue the sequence.
func TestDisable_SequenceContinuesAfterAResume(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	broken, both := r.subscribe(ws, "call.completed"), r.subscribe(ws, failing, failed)
	for range 2 {
		r.fail(broken)
		if _, _, err := r.store.Disable(t.Context(), broken, strictRule); err != nil {
			t.Fatalf("Disable: %v", err)
		}
		active := subscriptions.Active
		if _, err := r.store.Change(t.Context(), ws, broken, store.Change{Status: &active}); err != nil {
			t.Fatal(err)
		}
	}
	wantEqual(t, "events", len(r.received(both)), 4)
	wantEqual(t, "highest sequence", r.count(`SELECT max(sequence) FROM events`), 4)
}
