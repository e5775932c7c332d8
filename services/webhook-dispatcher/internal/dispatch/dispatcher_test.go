package dispatch_test

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

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
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

// verifySignature checks a signature without code of the webhook-dispatcher
// (docs/reference/api/webhooks.md#signature). Receivers accept a signature for 300 s.
func verifySignature(g receivedRequest, secret string) error {
	signature := g.header.Get("X-Service-Signature")
	at, _, found := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
	if !found {
		return fmt.Errorf("signature = %q, want t=…,v1=…", signature)
	}
	unix, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("timestamp of signature %q: %w", signature, err)
	}
	if age := time.Since(time.Unix(unix, 0)).Abs(); age > 300*time.Second {
		return fmt.Errorf("timestamp of signature %q is %s old, want at most 300 s", signature, age)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", at, g.body)
	if want := "t=" + at + ",v1=" + hex.EncodeToString(mac.Sum(nil)); signature != want {
		return fmt.Errorf("signature = %q, want %q", signature, want)
	}
	return nil
}

func TestDispatch_SendsOneSignedDeliveryPerMatchingSubscription(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	all, some := newReceiver(t, nil), newReceiver(t, nil)
	allID, allSecret := r.subscribe(all.URL)
	r.subscribe(some.URL, "call.failed")
	d := r.dispatch(config())

	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	d.Wake()
	g := all.await(t, 1)[0]
	if err := verifySignature(g, allSecret); err != nil {
		t.Error(err)
	}
	if string(g.body) != string(ev.Body) {
		t.Errorf("body = %s, want the event's bytes", g.body)
	}
	for name, want := range map[string]string{
		"X-Service-Event-Id": ev.ID.String(), "X-Service-Delivery-Attempt": "1",
		"X-Service-Delivery-Id": deliveries.ID(allID, ev.ID, ev.CreatedAt).String(),
	} {
		if got := g.header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	r.awaitStatus(allID, ev.ID, deliveries.Delivered)
	r.ingest(ev) // Kafka can deliver the record of an event twice
	d.Wake()
	other := r.event(uuid.New(), 1, "call.failed")
	r.ingest(other)
	d.Wake()
	some.await(t, 1)
	all.await(t, 2)
	wantEqual(t, "requests of two events, one of which was read twice", len(all.all()), 2)
	sub := r.subscription(allID)
	wantEqual(t, "LastSuccessAt is set", sub.LastSuccessAt != nil, true)
	wantEqual(t, "LastFailureAt", sub.LastFailureAt, nil)
	wantEqual(t, "consecutive failures", sub.ConsecutiveFailures, 0)
	wantEqual(t, "stored bodies of two events", r.count(`SELECT count(*) FROM events`), 2)
}

func TestDispatch_SendsTheSameBodyFiveTimesOnSchedule(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	bad := newReceiver(t, always(500))
	id, secret := r.subscribe(bad.URL)
	d := r.dispatch(config())
	ev := r.event(uuid.New(), 1, "call.busy")
	r.ingest(ev)
	d.Wake()

	r.awaitStatus(id, ev.ID, deliveries.Failed)
	all := bad.all()
	if len(all) != 5 {
		t.Fatalf("requests = %d, want 5", len(all))
	}
	least := config().RetryDelays
	for i, g := range all {
		if err := verifySignature(g, secret); err != nil {
			t.Errorf("attempt %d: %v", i+1, err)
		}
		wantEqual(t, "attempt", g.header.Get("X-Service-Delivery-Attempt"), strconv.Itoa(i+1))
		wantEqual(t, "delivery id", g.deliveryID(), all[0].deliveryID())
		wantEqual(t, "body", string(g.body), string(ev.Body))
		if i == 0 {
			continue
		}
		// The test checks no upper bound, because an upper bound would depend on the speed of the
		// machine.
		if delay := g.at.Sub(all[i-1].at); delay < least[i-1]*9/10 {
			t.Errorf("delay before attempt %d = %s, want at least nine tenths of %s", i+1, delay, least[i-1])
		}
	}
	attempts, err := r.store.Attempts(t.Context(), deliveries.ID(id, ev.ID, ev.CreatedAt))
	if err != nil {
		t.Fatalf("Attempts: %v", err)
	}
	if len(attempts) != 5 {
		t.Fatalf("attempts in history = %d, want 5", len(attempts))
	}
	wantEqual(t, "code of the last attempt", *attempts[4].Code, 500)
	wantEqual(t, "error of the last attempt", *attempts[4].Error, "http_status")
	sub := r.subscription(id)
	wantEqual(t, "consecutive failures", sub.ConsecutiveFailures, 5)
	wantEqual(t, "LastFailureAt is set", sub.LastFailureAt != nil, true)
	wantEqual(t, "status", sub.Status, subscriptions.Active)
	wantEqual(t, "open deliveries", r.count(`SELECT count(*) FROM delivery_queue`), 0)
}

func TestDispatch_SendsTheEventsOfACallInSequenceOrder(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	release := make(chan struct{})
	recv := newReceiver(t, func(receivedRequest, int) int {
		<-release
		return 200
	})
	id, _ := r.subscribe(recv.URL)
	d := r.dispatch(config())
	call := uuid.New()
	kinds := []string{"call.ringing", "call.answered", "call.completed"}
	events := make([]deliveries.Event, len(kinds))
	for i, kind := range kinds {
		events[i] = r.event(call, int32(i+1), kind)
	}
	slices.Reverse(events) // insert the events in reverse order, because the queue is not sorted by due time
	r.ingest(events...)
	d.Wake()
	for i := range kinds {
		recv.await(t, i+1)
		wantEqual(t, "deliveries claimed while an earlier event is in its first attempt", len(r.claim(claimFirst(id))), 0)
		release <- struct{}{}
	}
	for i, g := range recv.await(t, 3) {
		if g.Type != kinds[i] {
			t.Errorf("type of request %d = %s, want %s", i+1, g.Type, kinds[i])
		}
	}
}

func TestDispatch_FailedEventDoesNotDelayLaterEventsOfItsCall(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, func(g receivedRequest, _ int) int {
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
	r.awaitStatus(id, last.ID, deliveries.Delivered)
}

func TestPause_QueuedDeliveriesWaitForTheResumption(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, nil)
	id, _ := r.subscribe(recv.URL)
	const queued = 100
	for range queued {
		r.ingest(r.event(uuid.New(), 1, "call.completed"))
	}
	r.setStatus(id, subscriptions.Paused)
	d := r.dispatch(wakeOnlyConfig())
	skipped := r.event(uuid.New(), 1, "call.completed")
	r.ingest(skipped)
	if got := r.delivery(id, skipped.ID).Status; got != deliveries.Skipped {
		t.Errorf("status of a delivery that was ingested during the pause = %s, want skipped", got)
	}
	// When this second subscription has received its delivery, the dispatcher has also read the
	// held deliveries.
	other := newReceiver(t, nil)
	r.subscribe(other.URL)
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	d.Wake()
	other.await(t, 1)
	if n := len(recv.all()); n != 0 {
		t.Fatalf("requests during the pause = %d, want 0", n)
	}

	r.setStatus(id, subscriptions.Active)
	d.Wake()
	recv.await(t, queued)
	testkit.NoError(t, func() error {
		if n := r.count(`SELECT count(*) FROM deliveries WHERE subscription_id = $1 AND status = 'delivered'`, id); n != queued {
			return fmt.Errorf("delivered = %d, want %d", n, queued)
		}
		return nil
	})
	seen := map[string]int{}
	for _, g := range recv.all() {
		seen[g.deliveryID()]++
	}
	wantEqual(t, "deliveries that were sent", len(seen), queued)
	wantEqual(t, "requests", len(recv.all()), queued)
}

func TestPause_DoesNotChangeTheDueTimeOfARetry(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, always(500))
	id, _ := r.subscribe(recv.URL)
	cfg := config()
	cfg.RetryDelays = []time.Duration{time.Hour}
	d := r.dispatch(cfg)
	ev := r.event(uuid.New(), 1, "call.completed")
	r.ingest(ev)
	d.Wake()
	testkit.NoError(t, func() error {
		if r.delivery(id, ev.ID).Attempts != 1 {
			return errors.New("first attempt not settled")
		}
		return nil
	})
	before := *r.delivery(id, ev.ID).NextAttemptAt
	r.setStatus(id, subscriptions.Paused)
	r.setStatus(id, subscriptions.Active)
	if after := *r.delivery(id, ev.ID).NextAttemptAt; !after.Equal(before) {
		t.Errorf("due time of the retry = %[2]s after pause and resumption, want %[1]s", before, after)
	}
}

func TestRotate_SignsTheNextAttemptWithTheNewSecret(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	rotated := make(chan struct{})
	recv := newReceiver(t, func(_ receivedRequest, n int) int {
		if n > 1 {
			return 200
		}
		<-rotated // the next attempt is claimed after the rotation
		return 500
	})
	id, old := r.subscribe(recv.URL)
	d := r.dispatch(config())
	release := sync.OnceFunc(func() { close(rotated) })
	// cleanups run in reverse order, so the endpoint responds before the dispatcher is stopped
	t.Cleanup(release)
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	d.Wake()
	if err := verifySignature(recv.await(t, 1)[0], old); err != nil {
		t.Errorf("first attempt: %v", err)
	}
	if err := r.store.Rotate(t.Context(), r.workspace, id, "whsec_brand_new"); err != nil {
		t.Fatal(err)
	}
	release()
	if err := verifySignature(recv.await(t, 2)[1], "whsec_brand_new"); err != nil {
		t.Errorf("retry after rotation: %v", err)
	}
	if got := r.subscription(id).MaskedSecret(); got != "whsec_\u2026_new" {
		t.Errorf("masked secret = %q, want the end of the new one", got)
	}
	if n := r.count(`SELECT count(*) FROM subscriptions WHERE position('whsec' IN encode(secret_sealed, 'escape')) > 0`); n != 0 {
		t.Error("the secret is stored without encryption")
	}
}

func TestSubscriptionUpdate_SendsTheNextAttemptToTheNewURL(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	changed := make(chan struct{})
	before, after := newReceiver(t, func(receivedRequest, int) int { <-changed; return 500 }), newReceiver(t, nil)
	id, _ := r.subscribe(before.URL)
	d := r.dispatch(config())
	release := sync.OnceFunc(func() { close(changed) })
	// cleanups run in reverse order, so the endpoint responds before the dispatcher is stopped
	t.Cleanup(release)
	r.ingest(r.event(uuid.New(), 1, "call.completed"))
	d.Wake()
	before.await(t, 1)
	if _, err := r.store.Change(t.Context(), r.workspace, id, store.Change{URL: &after.URL}); err != nil {
		t.Fatal(err)
	}
	release()
	after.await(t, 1)
	if n := len(before.all()); n != 1 {
		t.Errorf("requests to the old url = %d, want 1", n)
	}
}

func TestDelete_RemovesTheHistoryWhileRequestsAreInFlight(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	recv := newReceiver(t, always(500))
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
	if err := retention.New(r.store, retention.Config{}).DeleteSubscriptions(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	d.stopAndWait()
	for _, table := range []string{"subscriptions", "subscription_health", "delivery_queue", "deliveries", "attempts"} {
		if n := r.count(`SELECT count(*) FROM ` + table); n != 0 {
			t.Errorf("%[2]s: rows = %[1]d, want 0", n, table)
		}
	}
	if err := r.store.Delete(t.Context(), r.workspace, id); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("second Delete = %v, want ErrNotFound", err)
	}
}
