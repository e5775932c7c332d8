package dispatching_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/libs/stopwatch"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

func pageOf(limit int) page.Request { return page.Request{Limit: limit} }

// claimOf asks for a first window of each subscription.
func claimOf(ids ...uuid.UUID) store.Claim {
	claim := store.Claim{Lease: 300 * time.Millisecond, Attempts: 5}
	for _, id := range ids {
		claim.Room = append(claim.Room, store.Room{SubscriptionID: id, Total: 8, Retries: 4})
	}
	return claim
}

// A process that dies between send and completion leaves exactly this: claimed rows, and requests the receiver has seen.
func TestCrash_AfterSendRepeatsOnlyWhatWasInFlightWithTheSameID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	const total = 30
	events := make([]delivery.Event, total)
	for i := range events {
		events[i] = r.event(uuid.New(), 1, "call.completed")
	}
	r.ingest(events...)
	inFlight, err := r.store.ClaimDue(t.Context(), claimOf(id))
	if err != nil || len(inFlight) != 8 {
		t.Fatalf("the dead process had claimed %d, %v, want its window of 8", len(inFlight), err)
	}
	claimed := map[string]bool{}
	for _, w := range inFlight {
		claimed[w.DeliveryID.String()] = true
	}
	d := r.dispatch(config())
	d.Wake()
	recv.await(t, total)
	eventually(t, func() error {
		if n := r.count(`SELECT count(*) FROM webhook_delivery WHERE status = 'delivered'`); n != total {
			return fmt.Errorf("%d of %d delivered", n, total)
		}
		return nil
	})
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.delivery()]++
		if want := map[bool]string{true: "2", false: "1"}[claimed[g.delivery()]]; g.header.Get("X-Service-Delivery-Attempt") != want {
			t.Errorf("delivery %s has attempt %s, want %s", g.delivery(), g.header.Get("X-Service-Delivery-Attempt"), want)
		}
	}
	for _, ev := range events {
		if n := seen[delivery.ID(id, ev.ID).String()]; n != 1 {
			t.Errorf("delivery of event %s sent %d times by the survivor, want once", ev.ID, n)
		}
	}
	// The dead process comes back and reports: its leases have passed, nothing changes.
	late := make([]delivery.Result, len(inFlight))
	for i, w := range inFlight {
		late[i] = delivery.Result{DeliveryID: w.DeliveryID, Attempt: w.Attempt, Outcome: delivery.Over, Answer: delivery.Answer{Failure: delivery.Timeout, At: time.Now()}}
	}
	if done, err := r.store.Complete(t.Context(), late); err != nil || done.Settled != 0 {
		t.Errorf("late completion settled %d, %v, want 0", done.Settled, err)
	}
	if sub := r.subscription(id); sub.ConsecutiveFailures != 0 {
		t.Errorf("a late completion moved the counters: %+v", sub)
	}
}

func TestComplete_AStaleAttemptIsFencedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, _ := r.subscribe("https://example.com/")
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	claim := claimOf(id)
	claim.Lease = time.Nanosecond
	first, err := r.store.ClaimDue(t.Context(), claim)
	if err != nil || len(first) != 1 {
		t.Fatalf("first claim = %d, %v", len(first), err)
	}
	second, err := r.store.ClaimDue(t.Context(), claim)
	if err != nil || len(second) != 1 || second[0].Attempt != 2 || second[0].Retry {
		t.Fatalf("second claim = %+v, %v, want attempt 2 that is no retry", second, err)
	}
	ok := delivery.Answer{Code: 200, At: time.Now()}
	if done, err := r.store.Complete(t.Context(), []delivery.Result{{DeliveryID: first[0].DeliveryID, Attempt: 1, Outcome: delivery.Done, Answer: ok}}); err != nil || done.Settled != 0 {
		t.Errorf("completion of the stale attempt settled %d, %v, want 0", done.Settled, err)
	}
	if done, err := r.store.Complete(t.Context(), []delivery.Result{{DeliveryID: first[0].DeliveryID, Attempt: 2, Outcome: delivery.Done, Answer: ok}}); err != nil || done.Settled != 1 {
		t.Errorf("completion of the live attempt settled %d, %v, want 1", done.Settled, err)
	}
	if d := r.delivery(id, ev.ID); d.Status != delivery.Delivered || d.Attempts != 2 {
		t.Errorf("delivery = %+v, want delivered at attempt 2", d)
	}
}

// Crash after crash uses up the attempts; the delivery ends visibly, and the endpoint is not blamed.
func TestCrash_ALoopOfCrashesEndsAfterFiveAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	claim := claimOf(id)
	claim.Lease = time.Nanosecond
	for n := 1; n <= 5; n++ {
		if work, err := r.store.ClaimDue(t.Context(), claim); err != nil || len(work) != 1 || work[0].Attempt != n {
			t.Fatalf("claim %d = %+v, %v", n, work, err)
		}
	}
	r.dispatch(config())
	r.awaitStatus(id, ev.ID, delivery.Failed)
	if n := len(recv.all()); n != 0 {
		t.Errorf("%d requests beyond the fifth attempt", n)
	}
	if d := r.delivery(id, ev.ID); d.LastError == nil || *d.LastError != "interrupted" {
		t.Errorf("delivery = %+v, want it to say interrupted", d)
	}
	if sub := r.subscription(id); sub.ConsecutiveFailures != 0 || sub.LastFailureAt != nil {
		t.Errorf("our crashes count against the endpoint: %+v", sub)
	}
}

// What was committed as claimed and never begun is the lease's; the attempt it had counted is one of the five.
func TestCrash_BetweenCommitAndStartIsHealedByTheLease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	dying := r.dispatch(config())
	events := []delivery.Event{r.event(uuid.New(), 1, "call.completed"), r.event(uuid.New(), 1, "call.completed")}
	direct := store.NewDirect(dying, time.Hour) // which has passed before anybody else looks
	r.put(direct, events...)
	direct.End(false) // nobody is left who would start them
	dying.stop()
	if n := r.count(`SELECT count(*) FROM webhook_queue WHERE attempt = 1 AND NOT is_retry`); n != 2 || len(recv.all()) != 0 {
		t.Fatalf("%d rows born claimed, %d requests; want 2 rows and nothing sent", n, len(recv.all()))
	}
	r.exec(`UPDATE webhook_queue SET due_at = now()`)
	r.dispatch(config())
	for _, g := range recv.await(t, 2) {
		if g.header.Get("X-Service-Delivery-Attempt") != "2" {
			t.Errorf("attempt %s, want 2: the one that was lost counts", g.header.Get("X-Service-Delivery-Attempt"))
		}
	}
	for _, ev := range events {
		r.awaitStatus(id, ev.ID, delivery.Delivered)
	}
	if n := len(recv.all()); n != 2 {
		t.Errorf("%d requests, want each delivery once", n)
	}
}

func TestCrash_TheAttemptWithoutAClaimIsOneOfTheFive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	ev := r.event(uuid.New(), 1, "call.completed")
	dying := r.dispatch(config())
	direct := store.NewDirect(dying, time.Hour)
	r.put(direct, ev)
	direct.End(false)
	dying.stop()
	r.exec(`UPDATE webhook_queue SET due_at = now()`)
	claim := claimOf(id)
	claim.Lease = time.Nanosecond
	for n := 2; n <= 5; n++ {
		if work, err := r.store.ClaimDue(t.Context(), claim); err != nil || len(work) != 1 || work[0].Attempt != n {
			t.Fatalf("claim of attempt %d = %+v, %v", n, work, err)
		}
	}
	r.dispatch(config())
	r.awaitStatus(id, ev.ID, delivery.Failed)
	if n := len(recv.all()); n != 0 {
		t.Errorf("%d requests beyond the fifth attempt", n)
	}
}

func TestReplicas_ShareTheWorkWithoutSendingTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
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
	eventually(t, func() error {
		if n := r.count(`SELECT count(*) FROM webhook_queue`); n != 0 {
			return fmt.Errorf("%d rows of open work left", n)
		}
		return nil
	})
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.delivery()]++
	}
	if len(seen) != 4*calls || len(recv.all()) != 4*calls {
		t.Errorf("%d requests of %d deliveries, want %d once each", len(recv.all()), len(seen), 4*calls)
	}
}

func TestClaim_IsFairOverSubscriptionsAndBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, _ := r.subscribe("https://one.example/", "call.completed")
	second, _ := r.subscribe("https://two.example/", "call.completed", "call.busy")
	for range 40 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	claim := claimOf(first, second)
	claim.Lease = time.Minute
	claim.Room[1].Total, claim.Room[1].Retries = 3, 1
	work, err := r.store.ClaimDue(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	per := map[uuid.UUID]int{}
	for _, w := range work {
		per[w.SubscriptionID]++
	}
	if per[first] != 8 || per[second] != 3 {
		t.Errorf("claimed %d and %d, want the first window of 8 and the room of 3", per[first], per[second])
	}
	// The walk stops where it was told to, goes on behind that, and says when it has come to the end.
	for _, step := range []struct{ after, found, next uuid.UUID }{{uuid.Nil, first, first}, {first, second, second}} {
		lanes, next, err := r.store.DueLanes(t.Context(), step.after, 1, 5)
		if err != nil || len(lanes) != 1 || lanes[0].SubscriptionID != step.found || !lanes[0].First || lanes[0].Retry || next != step.next {
			t.Errorf("one step behind %s = %+v, next %s, %v; want %s with first tries", step.after, lanes, next, err, step.found)
		}
	}
	if lanes, next, err := r.store.DueLanes(t.Context(), second, 1, 5); err != nil || len(lanes) != 0 || next != uuid.Nil {
		t.Errorf("behind the last = %+v, next %s, %v; want the end", lanes, next, err)
	}
}

func TestClaim_RetriesStandBehindFirstTries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, _ := r.subscribe("https://one.example/")
	for range 20 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	r.exec(`UPDATE webhook_queue SET is_retry = true, attempt = 1, due_at = now() - interval '1 hour'`)
	for range 6 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	claim := claimOf(id)
	claim.Lease = time.Minute
	work, err := r.store.ClaimDue(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	var retries, firsts int
	for _, w := range work {
		if w.Retry {
			retries++
		} else {
			firsts++
		}
	}
	if firsts != 6 || retries != 2 {
		t.Errorf("claimed %d first tries and %d retries, want all 6 and the 2 that are left of the window", firsts, retries)
	}
}

func TestStop_WhatAClaimTookIsStillSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sink := newReceiver(t, nil)
	id, _ := r.subscribe(sink.URL)
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	blocker, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := blocker.Exec(t.Context(), `LOCK TABLE webhook_queue IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	d := r.dispatch(config())
	r.awaitLocked()
	stopped := make(chan struct{})
	go func() { defer close(stopped); d.stop() }() // SIGTERM in the middle of a claim
	<-d.told
	if err := blocker.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-stopped
	if n := len(sink.all()); n != 1 {
		t.Errorf("%d requests, want 1: the claim had counted the attempt", n)
	}
	r.awaitStatus(id, ev.ID, delivery.Delivered)
}

// The limit of a claim is short when its lease is: what it took would outlast it.
func TestClaim_OneThatTakesTooLongIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sink := newReceiver(t, nil)
	r.subscribe(sink.URL)
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	blocker, err := pgtest.Owner(t, r.pool, schema).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := blocker.Exec(t.Context(), `LOCK TABLE webhook_queue IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	cfg := blind()
	cfg.Lease = 2 * time.Second
	r.dispatch(cfg)
	r.awaitLocked()
	begun := stopwatch.Start(t.Context())
	eventually(t, func() error {
		if n := r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); n > 0 {
			return fmt.Errorf("%d statements wait", n)
		}
		return nil
	})
	if took := begun.Took(); took > 4*time.Second { // it is 0.4 s, where a claim may take 5 s at most
		t.Errorf("the claim went on waiting for %s", took)
	}
}
