package dispatch_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func TestIngest_EventsOfACallAreSentInSequenceOrder(t *testing.T) {
	t.Parallel()
	kinds := []string{"call.ringing", "call.answered", "call.completed"}
	for name, batches := range map[string][][]int{
		"all events in one batch": {{2, 0, 1}}, "each event in its own batch": {{0}, {1}, {2}},
		"the events in two batches": {{0}, {2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			release := make(chan struct{})
			recv := newReceiver(t, func(receivedRequest, int) int {
				<-release
				return 200
			})
			r.subscribe(recv.URL)
			d := r.dispatch(wakeOnlyConfig())
			call := uuid.New()
			for _, batch := range batches {
				var events []deliveries.Event
				for _, i := range batch {
					events = append(events, r.event(call, int32(i+1), kinds[i]))
				}
				r.ingestAndAdd(d, events...)
				recv.await(t, 1)
			}
			for i := range kinds {
				all := recv.await(t, i+1)
				wantEqual(t, "requests", len(all), i+1)
				wantEqual(t, "type of the request", all[i].Type, kinds[i])
				release <- struct{}{}
			}
			r.awaitEmptyQueue()
		})
	}
}

func TestIngest_EventsDuringAChangeToPausedAreDeliveredOrSkipped(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(wakeOnlyConfig())
	const total = 300
	halfway := make(chan struct{})
	var ingesting sync.WaitGroup
	ingesting.Go(func() {
		for i := range total {
			r.ingestAndAdd(d, r.event(uuid.New(), 1, "call.completed"))
			if i == total/3 {
				close(halfway)
			}
		}
	})
	<-halfway
	r.setStatus(id, subscriptions.Paused)
	ingesting.Wait()
	r.setStatus(id, subscriptions.Active)
	d.Wake()
	r.awaitEmptyQueue()
	skipped := r.count(`SELECT count(*) FROM deliveries WHERE status = 'skipped'`)
	sent := len(recv.all())
	wantEqual(t, "delivered and skipped events", sent+skipped, total)
	if skipped == 0 {
		t.Error("skipped events = 0, want some")
	}
	if sent == 0 {
		t.Error("delivered events = 0, want some")
	}
}

func TestIngest_TwoReplicasSendEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	r.subscribe(recv.URL)
	r.subscribe(recv.URL)
	one, two := r.dispatch(config()), r.dispatch(config())
	const shared, own = 80, 40
	const calls = shared + 2*own
	ids := make([]uuid.UUID, shared)
	for i := range ids {
		ids[i] = uuid.New()
	}
	var ingesting sync.WaitGroup
	for _, d := range []runningDispatcher{one, two} {
		ingesting.Go(func() {
			for i, call := range ids {
				r.ingestAndAdd(d, r.event(call, 1, "call.ringing"), r.event(call, 2, "call.completed"))
				if call := uuid.New(); i < own {
					r.ingestAndAdd(d, r.event(call, 1, "call.ringing"), r.event(call, 2, "call.completed"))
				}
			}
		})
	}
	ingesting.Wait()
	recv.await(t, 4*calls)
	r.awaitEmptyQueue()
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.deliveryID()]++
	}
	wantEqual(t, "deliveries that were sent", len(seen), 4*calls)
	wantEqual(t, "requests", len(recv.all()), 4*calls)
}
