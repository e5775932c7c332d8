package dispatching_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/polltest"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatching"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// blind never looks at the queue unasked.
func blind() dispatching.Config {
	cfg := config()
	cfg.Poll = time.Hour
	return cfg
}

// put writes events in one transaction as the inbox does.
func (r *rig) put(direct *store.Direct, events ...delivery.Event) (done store.Ingested) {
	r.t.Helper()
	err := pg.InPipeline(r.t.Context(), r.pool, func(tx *pg.Pipeline) (err error) {
		done, err = r.store.Ingest(r.t.Context(), tx, direct, events...)
		return err
	})
	if err != nil {
		r.t.Errorf("Ingest: %v", err)
	}
	return done
}

// through ingests as the consumer of that dispatcher does.
func (r *rig) through(d running, events ...delivery.Event) {
	r.t.Helper()
	direct := store.NewDirect(d, config().Lease)
	done := r.put(direct, events...)
	d.Start(direct.End(true))
	if done.Waiting > 0 {
		d.Wake()
	}
}

// started is how many attempts began on a path.
func (d running) started(t *testing.T, path string) (n float64) {
	t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "webhook_started_total" && metric.GetLabel()[0].GetValue() == path {
				n += metric.GetCounter().GetValue()
			}
		}
	}
	return n
}

// room is how many seats there are, each of a subscription of its own; it gives them back.
func (d running) room() (n int) {
	var ids []uuid.UUID
	for {
		id := uuid.New()
		if !d.Seat(id, fmt.Sprintf("https://%s.example/", id)) {
			break
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		d.Unseat(id)
	}
	return len(ids)
}

func (r *rig) settled() {
	r.t.Helper()
	polltest.NoError(r.t, func() error {
		if n := r.count(`SELECT count(*) FROM webhook_queue`); n != 0 {
			return fmt.Errorf("%d rows of open work left", n)
		}
		return nil
	})
}

func TestDirect_SendsWithoutAClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, secret := r.subscribe(recv.URL)
	d := r.dispatch(blind())
	room := d.room()
	var events []delivery.Event
	for i := range 20 {
		events = append(events, r.event(uuid.New(), 1, "call.completed"))
		r.through(d, events[i])
		g := recv.await(t, i+1)[i]
		if err := verify(g, secret); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		wantEqual(t, "body", string(g.body), string(events[i].Body))
		wantEqual(t, "delivery id", g.delivery(), delivery.ID(id, events[i].ID).String())
		wantEqual(t, "attempt", g.header.Get("X-Service-Delivery-Attempt"), "1")
	}
	r.settled()
	wantEqual(t, "attempts without a claim", d.started(t, "direct"), 20)
	wantEqual(t, "attempts by a claim", d.started(t, "claim"), 0)
	r.through(d, events...) // read again after they were delivered
	r.through(d, r.event(uuid.New(), 1, "call.completed"))
	recv.await(t, 21)
	r.settled()
	if n := len(recv.all()); n != 21 {
		t.Errorf("%d requests, want 21: what was delivered is not sent again", n)
	}
	polltest.NoError(t, func() error {
		if n := d.room(); n != room {
			return fmt.Errorf("room for %d, at first for %d", n, room)
		}
		return nil
	})
}

func TestDirect_KeepsTheOrderOfACall(t *testing.T) {
	t.Parallel()
	kinds := []string{"call.ringing", "call.answered", "call.completed"}
	for name, batches := range map[string][][]int{"in one batch": {{2, 0, 1}}, "in batches of their own": {{0}, {1}, {2}}, "in two": {{0}, {2, 1}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			release := make(chan struct{})
			recv := newReceiver(t, func(got, int) int {
				<-release
				return 200
			})
			r.subscribe(recv.URL)
			d := r.dispatch(blind())
			call := uuid.New()
			for _, batch := range batches {
				var events []delivery.Event
				for _, i := range batch {
					events = append(events, r.event(call, int32(i+1), kinds[i]))
				}
				r.through(d, events...)
				recv.await(t, 1)
			}
			for i := range kinds {
				all := recv.await(t, i+1)
				wantEqual(t, "requests", len(all), i+1)
				wantEqual(t, "type of the request", all[i].Type, kinds[i])
				release <- struct{}{}
			}
			r.settled()
			if direct := d.started(t, "direct"); direct != 1 {
				t.Errorf("%v began directly, want the first alone", direct)
			}
		})
	}
}

func TestDirect_WhatHasNoSeatFlowsBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	recv := newReceiver(t, func(got, int) int {
		<-release
		return 200
	})
	r.subscribe(recv.URL)
	d := r.dispatch(blind())
	const total = 30
	events := make([]delivery.Event, total)
	for i := range events {
		events[i] = r.event(uuid.New(), 1, "call.completed")
	}
	r.through(d, events...)
	recv.await(t, 8)
	if n := r.count(`SELECT count(*) FROM webhook_queue WHERE attempt = 0`); n != total-8 {
		t.Errorf("%d rows wait, want all but the first window", n)
	}
	close(release)
	recv.await(t, total)
	r.settled()
	if n := len(recv.all()); n != total {
		t.Errorf("%d requests, want %d", n, total)
	}
	wantEqual(t, "attempts without a claim", d.started(t, "direct"), 8)
	wantEqual(t, "attempts by a claim", d.started(t, "claim"), total-8)
}

func TestDirect_StopWaitsForWhatIsBeingCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(blind())
	kept, lost := r.event(uuid.New(), 1, "call.completed"), r.event(uuid.New(), 1, "call.completed")
	direct, failing := store.NewDirect(d, config().Lease), store.NewDirect(d, config().Lease)
	r.put(direct, kept)
	away := errors.New("away")
	_ = pg.InPipeline(t.Context(), r.pool, func(tx *pg.Pipeline) error {
		if _, err := r.store.Ingest(t.Context(), tx, failing, lost); err != nil {
			t.Error(err)
		}
		return away
	})
	stopped := make(chan struct{})
	go func() { defer close(stopped); d.stop() }()
	<-d.told
	polltest.NoError(t, func() error {
		if other := uuid.New(); d.Seat(other, recv.URL) {
			d.Unseat(other)
			return errors.New("a seat was given after the stop")
		}
		return nil
	})
	select {
	case <-stopped:
		t.Fatal("it ended while seats were out")
	default:
	}
	d.Start(direct.End(true))
	r.awaitStatus(id, kept.ID, delivery.Delivered)
	failing.End(false)
	<-stopped
	if n := len(recv.all()); n != 1 {
		t.Errorf("%d requests, want the one that was committed", n)
	}
}

// Every event that is ingested around a pause is either delivered or skipped. Nothing is claimed after
// the response of the pause: TestIngest_APauseThatIsAnsweredFindsEveryRowBeforeIt.
func TestDirect_EveryEventAroundAPauseIsDeliveredOrSkipped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(blind())
	const total = 300
	halfway := make(chan struct{})
	var ingesting sync.WaitGroup
	ingesting.Go(func() {
		for i := range total {
			r.through(d, r.event(uuid.New(), 1, "call.completed"))
			if i == total/3 {
				close(halfway)
			}
		}
	})
	<-halfway
	r.setStatus(id, subscription.Paused)
	ingesting.Wait()
	if late := d.room(); late == 0 {
		t.Error("no room is left")
	}
	polltest.NoError(t, func() error {
		if n := r.count(`SELECT count(*) FROM webhook_queue WHERE NOT held`); n != 0 {
			return fmt.Errorf("%d rows of the paused subscription are not held", n)
		}
		return nil
	})
	r.setStatus(id, subscription.Active)
	d.Wake()
	r.settled()
	skipped := r.count(`SELECT count(*) FROM webhook_delivery WHERE status = 'skipped'`)
	sent := len(recv.all())
	wantEqual(t, "delivered and skipped events", sent+skipped, total)
	if skipped == 0 {
		t.Error("skipped events = 0, want some")
	}
	if sent == 0 {
		t.Error("delivered events = 0, want some")
	}
}

func TestDirect_TwoReplicasSendEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	r.subscribe(recv.URL)
	r.subscribe(recv.URL)
	one, two := r.dispatch(config()), r.dispatch(config())
	// A replica starts deliveries directly once its last claim left no due row of the subscription. Both do so
	// before the race.
	calls := 0
	for _, d := range []running{one, two} {
		polltest.NoError(t, func() error {
			call := uuid.New()
			calls++
			r.through(d, r.event(call, 1, "call.ringing"), r.event(call, 2, "call.completed"))
			recv.await(t, 4*calls)
			if d.started(t, "direct") == 0 {
				return fmt.Errorf("a replica started none of its deliveries directly; calls so far: %d", calls)
			}
			return nil
		})
	}
	const shared, own = 80, 40
	calls += shared + 2*own
	ids := make([]uuid.UUID, shared)
	for i := range ids {
		ids[i] = uuid.New()
	}
	var ingesting sync.WaitGroup
	for _, d := range []running{one, two} { // both read the same records, as around a rebalance, and some of their own
		ingesting.Go(func() {
			for i, call := range ids {
				r.through(d, r.event(call, 1, "call.ringing"), r.event(call, 2, "call.completed"))
				if call := uuid.New(); i < own {
					r.through(d, r.event(call, 1, "call.ringing"), r.event(call, 2, "call.completed"))
				}
			}
		})
	}
	ingesting.Wait()
	recv.await(t, 4*calls)
	r.settled()
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.delivery()]++
	}
	wantEqual(t, "deliveries that were sent", len(seen), 4*calls)
	wantEqual(t, "requests", len(recv.all()), 4*calls)
}

func TestDirect_NoSeatIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, _ := r.subscribe("https://example.com/")
	cfg := blind()
	cfg.MaxInFlight = 32
	d := r.dispatch(cfg)
	room := d.room()
	known := r.event(uuid.New(), 1, "call.completed")
	r.ingest(known)
	r.exec(`UPDATE webhook_queue SET due_at = now() + interval '1 hour'`)
	for range 3 * room {
		rolledBack, cancelled := store.NewDirect(d, time.Minute), store.NewDirect(d, time.Minute)
		_ = pg.InPipeline(t.Context(), r.pool, func(tx *pg.Pipeline) error {
			_, err := r.store.Ingest(t.Context(), tx, rolledBack, known, r.event(uuid.New(), 1, "call.completed"))
			return errors.Join(err, errors.New("away"))
		})
		d.Start(rolledBack.End(false))
		gone, cancel := context.WithCancel(t.Context())
		_ = pg.InPipeline(t.Context(), r.pool, func(tx *pg.Pipeline) error {
			_, err := r.store.Ingest(gone, tx, cancelled, r.event(uuid.New(), 1, "call.completed"))
			cancel()
			return errors.Join(err, gone.Err())
		})
		d.Start(cancelled.End(false))
		r.through(d, known)
	}
	if n := d.room(); n != room {
		t.Errorf("room for %d, at first for %d", n, room)
	}
	if direct := d.started(t, "direct"); direct != 0 {
		t.Errorf("%v attempts began", direct)
	}
	if n := r.count(`SELECT count(*) FROM webhook_queue WHERE subscription_id = $1`, id); n != 1 {
		t.Errorf("%d rows, want the one that was known", n)
	}
}
