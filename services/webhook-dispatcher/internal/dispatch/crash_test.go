package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// claimFirst returns the claim that a replica sends first after its start.
func claimFirst(ids ...uuid.UUID) store.Claim {
	claim := store.Claim{Lease: 300 * time.Millisecond, Attempts: 5}
	for _, id := range ids {
		claim.Quotas = append(claim.Quotas, store.Quota{SubscriptionID: id, Total: 8, Retries: 4})
	}
	return claim
}

// The process is killed after it sent requests and before it stored the results. Then the claimed
// rows stay in the queue.
func TestCrash_RepeatsOnlyTheRequestsInFlight(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	const total = 30
	events := make([]deliveries.Event, total)
	for i := range events {
		events[i] = r.event(uuid.New(), 1, "call.completed")
	}
	r.ingest(events...)
	inFlight := r.claim(claimFirst(id))
	wantEqual(t, "deliveries claimed by the killed process", len(inFlight), 8)
	claimed := map[string]bool{}
	for _, w := range inFlight {
		claimed[w.DeliveryID.String()] = true
	}
	d := r.dispatch(config())
	d.Wake()
	recv.await(t, total)
	testkit.NoError(t, func() error {
		if n := r.count(`SELECT count(*) FROM deliveries WHERE status = 'delivered'`); n != total {
			return fmt.Errorf("delivered = %d, want %d", n, total)
		}
		return nil
	})
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.deliveryID()]++
		if want := map[bool]string{true: "2", false: "1"}[claimed[g.deliveryID()]]; g.header.Get("X-Service-Delivery-Attempt") != want {
			t.Errorf("attempt of delivery %s = %s, want %s", g.deliveryID(), g.header.Get("X-Service-Delivery-Attempt"), want)
		}
	}
	for _, ev := range events {
		if n := seen[deliveries.ID(id, ev.ID, ev.CreatedAt).String()]; n != 1 {
			t.Errorf("requests of the new process for event %s = %d, want 1", ev.ID, n)
		}
	}
	// The killed process stores its results after its leases have ended. The store must ignore
	// these late results.
	late := make([]deliveries.Result, len(inFlight))
	for i, w := range inFlight {
		late[i] = deliveries.Result{DeliveryID: w.DeliveryID, Attempt: w.Attempt, Outcome: deliveries.OutcomeFailed, Response: deliveries.Response{Failure: deliveries.Timeout, At: time.Now()}}
	}
	wantEqual(t, "results stored after the end of the leases", r.storeResults(late...), 0)
	wantEqual(t, "consecutive failures after these results", r.subscription(id).ConsecutiveFailures, 0)
}

func TestComplete_IgnoresALateResultOfAnOlderAttempt(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	id, _ := r.subscribe("https://example.com/")
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	claim := claimFirst(id)
	claim.Lease = time.Nanosecond
	if first := r.claim(claim); len(first) != 1 {
		t.Fatalf("deliveries of the first claim = %d, want 1", len(first))
	}
	second := r.claim(claim)
	if len(second) != 1 {
		t.Fatalf("deliveries of the second claim = %d, want 1", len(second))
	}
	wantEqual(t, "attempt of the second claim", second[0].Attempt, 2)
	wantEqual(t, "retry of the second claim", second[0].Retry, false)
	ok := deliveries.Response{Code: 200, At: time.Now()}
	result := deliveries.Result{DeliveryID: second[0].DeliveryID, Outcome: deliveries.OutcomeDelivered, Response: ok}
	result.Attempt = 1
	wantEqual(t, "stored results of the older attempt", r.storeResults(result), 0)
	result.Attempt = 2
	wantEqual(t, "stored results of the current attempt", r.storeResults(result), 1)
	d := r.delivery(id, ev.ID)
	wantEqual(t, "status", d.Status, deliveries.Delivered)
	wantEqual(t, "attempts", d.Attempts, 2)
}

// If the process is killed during each of the five attempts, the delivery fails. This failure must
// not count as a failure of the endpoint.
func TestCrash_FiveCrashesMakeTheDeliveryFail(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	claim := claimFirst(id)
	claim.Lease = time.Nanosecond
	for n := 1; n <= 5; n++ {
		work := r.claim(claim)
		if len(work) != 1 {
			t.Fatalf("deliveries of claim %d = %d, want 1", n, len(work))
		}
		wantEqual(t, "attempt", work[0].Attempt, n)
	}
	r.dispatch(config())
	r.awaitStatus(id, ev.ID, deliveries.Failed)
	wantEqual(t, "requests beyond the fifth attempt", len(recv.all()), 0)
	interrupted := "interrupted"
	if diff := cmp.Diff(&interrupted, r.delivery(id, ev.ID).LastError); diff != "" {
		t.Errorf("last error (-want +got):\n%s", diff)
	}
	sub := r.subscription(id)
	wantEqual(t, "consecutive failures", sub.ConsecutiveFailures, 0)
	wantEqual(t, "last failure", sub.LastFailureAt, nil)
}

func TestReplicas_SendEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	r.subscribe(recv.URL)
	r.subscribe(recv.URL)
	one, two := r.dispatch(config()), r.dispatch(config())
	const calls = 150
	for range calls {
		call := uuid.New()
		r.ingest(r.event(call, 1, "call.ringing"), r.event(call, 2, "call.completed"))
		one.Wake()
		two.Wake()
	}
	recv.await(t, 4*calls)
	testkit.NoError(t, func() error {
		if n := r.count(`SELECT count(*) FROM delivery_queue`); n != 0 {
			return fmt.Errorf("queue rows = %d, want 0", n)
		}
		return nil
	})
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.deliveryID()]++
	}
	wantEqual(t, "deliveries that were sent", len(seen), 4*calls)
	wantEqual(t, "requests", len(recv.all()), 4*calls)
}

func TestClaim_TakesAtMostTheQuotaOfEachSubscription(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	first, _ := r.subscribe("https://one.example/", "call.completed")
	second, _ := r.subscribe("https://two.example/", "call.completed", "call.busy")
	for range 40 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	claim := claimFirst(first, second)
	claim.Lease = time.Minute
	claim.Quotas[1].Total, claim.Quotas[1].Retries = 3, 1
	work := r.claim(claim)
	per := map[uuid.UUID]int{}
	for _, w := range work {
		per[w.SubscriptionID]++
	}
	wantEqual(t, "deliveries claimed of the first subscription", per[first], 8)
	wantEqual(t, "deliveries claimed of the second subscription", per[second], 3)
}

func TestClaim_FirstAttemptsAreClaimedBeforeRetries(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	id, _ := r.subscribe("https://one.example/")
	for range 20 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	r.exec(`UPDATE delivery_queue SET is_retry = true, attempt = 1, due_at = now() - interval '1 hour'`)
	for range 6 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	claim := claimFirst(id)
	claim.Lease = time.Minute
	work := r.claim(claim)
	var retries, firsts int
	for _, w := range work {
		if w.Retry {
			retries++
		} else {
			firsts++
		}
	}
	wantEqual(t, "claimed first attempts", firsts, 6)
	wantEqual(t, "claimed retries, which fill the rest of the quota", retries, 2)
}

func TestStop_DeliveriesClaimedDuringTheStopAreSent(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	sink := newReceiver(t, nil)
	id, _ := r.subscribe(sink.URL)
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	blocker, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := blocker.Exec(t.Context(), `LOCK TABLE delivery_queue IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	d := r.dispatch(config())
	r.awaitLocked()
	stopped := make(chan struct{})
	go func() { defer close(stopped); d.stopAndWait() }() // stop the dispatcher during a claim, as SIGTERM does
	<-d.stopping
	if err := blocker.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-stopped
	if n := len(sink.all()); n != 1 {
		t.Errorf("requests = %d, want 1, because the claim has counted the attempt", n)
	}
	r.awaitStatus(id, ev.ID, deliveries.Delivered)
}

// In this test, only the start limit of the claim (a fifth of the lease) can cancel the statement.
func TestClaim_IsCanceledAfterItsStartLimit(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.withoutStatementTimeout()
	sink := newReceiver(t, nil)
	r.subscribe(sink.URL)
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	blocker, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := blocker.Exec(t.Context(), `LOCK TABLE delivery_queue IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	cfg := wakeOnlyConfig()
	cfg.Lease = 2 * time.Second
	r.dispatch(cfg)
	r.awaitLocked()
	testkit.NoError(t, func() error {
		if n := r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); n > 0 {
			return fmt.Errorf("waiting statements = %d", n)
		}
		return nil
	})
}
