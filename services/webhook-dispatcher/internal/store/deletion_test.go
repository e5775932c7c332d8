package store_test

import (
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

func TestDelete_DeliveriesOfADeletedSubscriptionAreNotClaimed(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	sub, other := r.subscribe(ws, "call.completed"), r.subscribe(ws, "call.completed")
	for range 25 {
		r.ingest(nil, event(ws, uuid.New(), 1, "call.completed"))
	}
	const retries = `UPDATE delivery_queue SET is_retry = true, attempt = 1 WHERE delivery_id < gen_random_uuid()`
	if _, err := r.pool.Exec(t.Context(), retries); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Delete(t.Context(), ws, sub); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	wantEqual(t, "claimed deliveries of the deleted subscription", len(r.claimAll(sub)), 0)
	deleted, err := r.store.DeletedSubscriptions(t.Context(), 10)
	if err != nil {
		t.Fatalf("DeletedSubscriptions: %v", err)
	}
	if len(deleted) != 1 {
		t.Fatalf("deleted subscriptions = %d, want 1", len(deleted))
	}
	wantEqual(t, "deleted subscription", deleted[0], sub)

	var place store.QueuePosition
	for i, want := range []int{10, 10, 5, 0} {
		next, n, err := r.store.DeleteQueued(t.Context(), sub, place, 10)
		if err != nil {
			t.Fatalf("DeleteQueued: %v", err)
		}
		if n != want {
			t.Errorf("queue rows deleted by step %d = %d, want %d", i, n, want)
		}
		place = next
	}
	history := store.NewestHistory()
	for i, want := range []int{10, 10, 5, 0} {
		next, n, err := r.store.DeleteHistory(t.Context(), sub, history, 10)
		if err != nil {
			t.Fatalf("DeleteHistory: %v", err)
		}
		if n != want {
			t.Errorf("deliveries deleted by step %d = %d, want %d", i, n, want)
		}
		history = next
	}
	if err := r.store.DeleteSubscription(t.Context(), other); err != nil {
		t.Fatalf("DeleteSubscription of a subscription that is not marked: %v", err)
	}
	if err := r.store.DeleteSubscription(t.Context(), sub); err != nil {
		t.Fatalf("DeleteSubscription: %v", err)
	}
	wantEqual(t, "subscriptions", r.count(`SELECT count(*) FROM subscriptions`), 1)
	wantEqual(t, "open deliveries of the other subscription", r.count(`SELECT count(*) FROM delivery_queue`), 25)
	wantEqual(t, "deliveries of the other subscription", r.count(`SELECT count(*) FROM deliveries`), 25)
}
