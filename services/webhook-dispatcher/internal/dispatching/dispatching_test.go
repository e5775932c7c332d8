package dispatching_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"ringfence.dev/libs/stopwatch"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// verify checks the signature as spec 6.3 tells a receiver to, apart from our own code.
func verify(g got, secret string) error {
	parts := strings.Split(g.header.Get("X-Service-Signature"), ",")
	if len(parts) != 2 || !strings.HasPrefix(parts[0], "t=") || !strings.HasPrefix(parts[1], "v1=") {
		return fmt.Errorf("signature %q is not t=…,v1=…", g.header.Get("X-Service-Signature"))
	}
	unix, err := strconv.ParseInt(parts[0][2:], 10, 64)
	if err != nil || time.Since(time.Unix(unix, 0)).Abs() > 300*time.Second {
		return fmt.Errorf("timestamp %q is not now", parts[0])
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", parts[0][2:], g.body)
	if want := hex.EncodeToString(mac.Sum(nil)); want != parts[1][3:] {
		return errors.New("signature does not match")
	}
	return nil
}

func TestDispatch_OneSignedDeliveryPerMatchingSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all, some := newReceiver(t, nil), newReceiver(t, nil)
	allID, allSecret := r.subscribe(all.URL)
	r.subscribe(some.URL, "call.failed")
	d := r.dispatch(config())

	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	d.Wake()
	g := all.await(t, 1)[0]
	if err := verify(g, allSecret); err != nil {
		t.Error(err)
	}
	if string(g.body) != string(ev.Body) {
		t.Errorf("body = %s, want the event's bytes", g.body)
	}
	for name, want := range map[string]string{
		"X-Service-Event-Id": ev.ID.String(), "X-Service-Delivery-Id": delivery.ID(allID, ev.ID).String(), "X-Service-Delivery-Attempt": "1",
	} {
		if got := g.header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	r.awaitStatus(allID, ev.ID, delivery.Delivered)
	r.ingest(ev) // the record comes again
	d.Wake()
	other := r.event(uuid.New(), 1, "call.failed")
	r.ingest(other)
	d.Wake()
	some.await(t, 1)
	all.await(t, 2)
	if n := len(all.all()); n != 2 {
		t.Errorf("%d requests, want 2: an event read again is not sent again", n)
	}
	if sub := r.subscription(allID); sub.LastSuccessAt == nil || sub.LastFailureAt != nil || sub.ConsecutiveFailures != 0 {
		t.Errorf("subscription after success = %+v", sub)
	}
	if n := r.count(`SELECT count(*) FROM webhook_event`); n != 2 {
		t.Errorf("%d bodies stored, want one per event", n)
	}
}

func TestDispatch_RetriesTheSameBytesFiveTimesOnSchedule(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bad := newReceiver(t, always(500))
	id, secret := r.subscribe(bad.URL)
	d := r.dispatch(config())
	ev := r.event(uuid.New(), 1, "call.busy")
	r.ingest(ev)
	d.Wake()

	r.awaitStatus(id, ev.ID, delivery.Failed)
	all := bad.all()
	if len(all) != 5 {
		t.Fatalf("%d attempts, want 5", len(all))
	}
	least := config().RetryDelays
	for i, g := range all {
		if err := verify(g, secret); err != nil {
			t.Errorf("attempt %d: %v", i+1, err)
		}
		if g.header.Get("X-Service-Delivery-Attempt") != strconv.Itoa(i+1) || g.delivery() != all[0].delivery() || string(g.body) != string(ev.Body) {
			t.Errorf("attempt %d has number %s, delivery %s: want its number, one delivery, the same bytes", i+1,
				g.header.Get("X-Service-Delivery-Attempt"), g.delivery())
		}
		if i > 0 && g.at.Sub(all[i-1].at) < least[i-1]*9/10 {
			t.Errorf("attempt %d came %s after the one before, want at least %s less a tenth", i+1, g.at.Sub(all[i-1].at), least[i-1])
		}
	}
	attempts, err := r.store.Attempts(t.Context(), delivery.ID(id, ev.ID))
	if err != nil || len(attempts) != 5 || *attempts[4].Code != 500 || *attempts[4].Error != "http_status" {
		t.Errorf("history = %+v, %v, want five attempts with code 500", attempts, err)
	}
	if sub := r.subscription(id); sub.ConsecutiveFailures != 5 || sub.LastFailureAt == nil || sub.Status != subscription.Active {
		t.Errorf("subscription after five failures = %+v", sub)
	}
	if n := r.count(`SELECT count(*) FROM webhook_queue`); n != 0 {
		t.Errorf("%d rows of open work left, want 0", n)
	}
}

func TestDispatch_AHangingReceiverDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	hanging := newReceiver(t, func(got, int) int { <-release; return 200 })
	healthy := newReceiver(t, nil)
	r.subscribe(hanging.URL)
	r.subscribe(healthy.URL)
	cfg := r.patient()
	cfg.MaxInFlight = 16 // less than what hangs would take if it could
	d := r.dispatch(cfg)
	t.Cleanup(func() { close(release) }) // before the dispatcher is stopped

	const calls = 60
	for range calls {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	start := stopwatch.Start(t.Context())
	d.Wake()
	healthy.await(t, calls)
	if took := start.Took(); took > 8*time.Second {
		t.Errorf("the healthy receiver waited %s beside a hanging one", took)
	}
	if n := len(hanging.all()); n > 8 {
		t.Errorf("%d requests open to an endpoint that never answered, want at most its first window of 8", n)
	}
}

func TestDispatch_KeepsTheOrderOfACall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	recv := newReceiver(t, func(got, int) int {
		<-release
		return 200
	})
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(config())
	call := uuid.New()
	kinds := []string{"call.ringing", "call.answered", "call.completed"}
	events := make([]delivery.Event, len(kinds))
	for i, kind := range kinds {
		events[i] = r.event(call, int32(i+1), kind)
	}
	slices.Reverse(events) // whatever order the rows were written in
	r.ingest(events...)
	d.Wake()
	for i := range kinds {
		recv.await(t, i+1)
		if work, err := r.store.ClaimDue(t.Context(), claimOf(id)); err != nil || len(work) != 0 {
			t.Fatalf("claimed %d, %v while event %d was in its first attempt, want 0", len(work), err, i+1)
		}
		release <- struct{}{}
	}
	for i, g := range recv.await(t, 3) {
		if g.Type != kinds[i] {
			t.Errorf("event %d is %s, want %s", i+1, g.Type, kinds[i])
		}
	}
}

func TestDispatch_AFailedEventDoesNotHoldBackItsCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, func(g got, _ int) int {
		if g.Type == "call.ringing" {
			return 503
		}
		return 200
	})
	id, _ := r.subscribe(recv.URL)
	cfg := config()
	cfg.RetryDelays = []time.Duration{time.Hour, time.Hour}
	d := r.dispatch(cfg)
	call := uuid.New()
	last := r.event(call, 2, "call.completed")
	r.ingest(r.event(call, 1, "call.ringing"), last)
	d.Wake()
	r.awaitStatus(id, last.ID, delivery.Delivered)
}

func TestPause_HoldsAndResumeReleases(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	const queued = 500
	for range queued {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	r.setStatus(id, subscription.Paused)
	d := r.dispatch(config())
	skipped := r.event(uuid.New(), 1, "call.completed")
	r.ingest(skipped)
	if got := r.delivery(id, skipped.ID).Status; got != delivery.Skipped {
		t.Errorf("event while paused is %s, want skipped", got)
	}
	if held, err := r.store.Deliveries(t.Context(), r.workspace, id, store.Filter{Status: delivery.Held}, pageOf(100)); err != nil || len(held) != 101 {
		t.Errorf("held deliveries listed = %d, %v, want a full page", len(held), err)
	}
	// A second subscription shows that the dispatcher has looked at the queue meanwhile.
	other := newReceiver(t, nil)
	r.subscribe(other.URL)
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	d.Wake()
	other.await(t, 1)
	if n := len(recv.all()); n != 0 {
		t.Fatalf("%d requests while paused, want 0", n)
	}

	r.setStatus(id, subscription.Active)
	resumed := stopwatch.Start(t.Context())
	d.Wake()
	recv.await(t, 1)
	if first := resumed.Took(); first > time.Second {
		t.Errorf("first delivery %s after the resumption was answered, want within 1 s", first)
	}
	recv.await(t, queued)
	eventually(t, func() error {
		if n := r.count(`SELECT count(*) FROM webhook_delivery WHERE subscription_id = $1 AND status = 'delivered'`, id); n != queued {
			return fmt.Errorf("%d delivered, want %d", n, queued)
		}
		return nil
	})
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.delivery()]++
	}
	if len(seen) != queued || len(recv.all()) != queued {
		t.Errorf("%d requests of %d deliveries, want each of %d once", len(recv.all()), len(seen), queued)
	}
}

func TestPause_LeavesARetryItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	recv := newReceiver(t, always(500))
	id, _ := r.subscribe(recv.URL)
	cfg := config()
	cfg.RetryDelays = []time.Duration{time.Hour}
	d := r.dispatch(cfg)
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	d.Wake()
	eventually(t, func() error {
		if r.delivery(id, ev.ID).Attempts != 1 {
			return errors.New("first attempt not settled")
		}
		return nil
	})
	before := *r.delivery(id, ev.ID).NextAttemptAt
	r.setStatus(id, subscription.Paused)
	r.setStatus(id, subscription.Active)
	if after := *r.delivery(id, ev.ID).NextAttemptAt; !after.Equal(before) {
		t.Errorf("retry moved from %s to %s by pause and resume", before, after)
	}
}

func TestRotate_TheNextAttemptSignsWithTheNewSecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rotated := make(chan struct{})
	recv := newReceiver(t, func(_ got, n int) int {
		if n > 1 {
			return 200
		}
		<-rotated // however long that takes here, the next attempt is behind it
		return 500
	})
	id, old := r.subscribe(recv.URL)
	d := r.dispatch(config())
	release := sync.OnceFunc(func() { close(rotated) })
	t.Cleanup(release) // before the dispatcher is stopped
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	d.Wake()
	if err := verify(recv.await(t, 1)[0], old); err != nil {
		t.Errorf("first attempt: %v", err)
	}
	if err := r.store.Rotate(t.Context(), r.workspace, id, "whsec_brand_new"); err != nil {
		t.Fatal(err)
	}
	release()
	if err := verify(recv.await(t, 2)[1], "whsec_brand_new"); err != nil {
		t.Errorf("retry after rotation: %v", err)
	}
	if got := r.subscription(id).MaskedSecret(); got != "whsec_\u2026_new" {
		t.Errorf("masked secret = %q", got)
	}
	if n := r.count(`SELECT count(*) FROM webhook_subscription WHERE position('whsec' IN encode(secret_sealed, 'escape')) > 0`); n != 0 {
		t.Error("a secret lies in the database as it is")
	}
}

func TestChange_TheNextAttemptGoesToTheNewURL(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	changed := make(chan struct{})
	before, after := newReceiver(t, func(got, int) int { <-changed; return 500 }), newReceiver(t, nil)
	id, _ := r.subscribe(before.URL)
	d := r.dispatch(config())
	release := sync.OnceFunc(func() { close(changed) })
	t.Cleanup(release) // before the dispatcher is stopped
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	d.Wake()
	before.await(t, 1)
	if _, err := r.store.Change(t.Context(), r.workspace, id, store.Change{URL: &after.URL}); err != nil {
		t.Fatal(err)
	}
	release()
	after.await(t, 1)
	if n := len(before.all()); n != 1 {
		t.Errorf("%d requests to the old url, want 1", n)
	}
}

func TestDelete_NothingIsSentAndHistoryGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var deleted since
	recv := newReceiver(t, func(got, int) int { deleted.arrived(); return 500 })
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(config())
	for range 20 {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	d.Wake()
	recv.await(t, 1)
	if err := r.store.Delete(t.Context(), r.workspace, id); err != nil {
		t.Fatal(err)
	}
	deleted.begin(t)
	for more := true; more; {
		var err error
		if more, err = r.store.EraseSome(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
	}
	d.stop() // whatever was under way is settled now
	for _, table := range []string{"webhook_subscription", "webhook_health", "webhook_queue", "webhook_delivery", "webhook_attempt"} {
		if n := r.count(`SELECT count(*) FROM ` + table); n != 0 {
			t.Errorf("%d rows left in %s", n, table)
		}
	}
	if last := deleted.last(); last > time.Second {
		t.Errorf("a request %s after DELETE was answered", last)
	}
	if err := r.store.Delete(t.Context(), r.workspace, id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("second Delete = %v, want ErrNotFound", err)
	}
}
