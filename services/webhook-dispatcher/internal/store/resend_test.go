package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

type resendFixture struct {
	*fixture
	ws, sub uuid.UUID
}

func newResendFixture(t *testing.T) resendFixture {
	t.Helper()
	r, ws := newFixture(t), uuid.New()
	return resendFixture{r, ws, r.subscribe(ws, "call.ringing", "call.completed")}
}

// queued ingests an event and returns its delivery.
func (r resendFixture) queued(call uuid.UUID, sequence int32, kind string) uuid.UUID {
	r.t.Helper()
	ev := event(r.ws, call, sequence, kind)
	ev.CreatedAt = ev.CreatedAt.Add(time.Duration(sequence) * time.Second)
	r.ingest(nil, ev)
	return deliveries.ID(r.sub, ev.ID, ev.CreatedAt)
}

func (r resendFixture) settle(outcome deliveries.Outcome, work ...deliveries.Work) int {
	r.t.Helper()
	results := make([]deliveries.Result, len(work))
	for i, w := range work {
		results[i] = deliveries.Result{DeliveryID: w.DeliveryID, Attempt: w.Attempt, Replay: w.Replay, Outcome: outcome,
			Delay: time.Hour, Response: deliveries.Response{Code: 200, At: time.Now()}}
		if outcome != deliveries.OutcomeDelivered {
			results[i].Response.Code, results[i].Response.Failure = 500, deliveries.BadStatus
		}
	}
	done, err := r.store.Complete(r.t.Context(), results)
	if err != nil {
		r.t.Fatalf("Complete: %v", err)
	}
	return done.Settled
}

func (r resendFixture) resend(id uuid.UUID) store.Delivery {
	r.t.Helper()
	queued, err := r.store.Resend(r.t.Context(), r.ws, id, "")
	if err != nil {
		r.t.Fatalf("Resend: %v", err)
	}
	return queued
}

func (r resendFixture) replay(period store.Period) int {
	r.t.Helper()
	if period.Until.IsZero() {
		period.Until = time.Now().AddDate(1, 0, 0)
	}
	count, err := r.store.ReplayPeriod(r.t.Context(), r.ws, r.sub, period)
	if err != nil {
		r.t.Fatalf("ReplayPeriod: %v", err)
	}
	return count
}

func TestResend_EndedDeliveryGetsOneNewSeriesOfAttempts(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	id := r.queued(uuid.New(), 1, "call.completed")
	for series, outcome := range []deliveries.Outcome{
		deliveries.OutcomeFailed, deliveries.OutcomeDelivered, deliveries.OutcomeDelivered,
	} {
		work := r.claimAll(r.sub)
		if len(work) != 1 {
			t.Fatalf("deliveries of series %d = %d, want 1", series, len(work))
		}
		wantEqual(t, "attempt", work[0].Attempt, 1)
		wantEqual(t, "replay", work[0].Replay, series)
		r.settle(outcome, work...)
		for range 2 { // the second request changes nothing, because an attempt is due
			queued := r.resend(id)
			wantEqual(t, "status", queued.Status, deliveries.Queued)
			wantEqual(t, "replays", queued.Replays, series+1)
		}
	}
	found, err := r.store.NewestAttempts(t.Context(), false, r.resend(id))
	if err != nil {
		t.Fatalf("NewestAttempts: %v", err)
	}
	wantEqual(t, "stored attempts", len(found[id]), 3)
}

func TestResend_ReplacesASeriesThatWaitsForARetry(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	call := uuid.New()
	id := r.queued(call, 1, "call.ringing")
	first := r.claimAll(r.sub)
	r.settle(deliveries.OutcomeRetry, first...)
	later := r.queued(call, 2, "call.completed")
	wantEqual(
		t,
		"due deliveries before the resend",
		r.count(`SELECT count(*) FROM delivery_queue WHERE due_at <= now()`),
		1,
	)

	queued := r.resend(id)
	wantEqual(t, "attempts", queued.Attempts, 0)
	if queued.NextAttemptAt.After(time.Now()) {
		t.Errorf("NextAttemptAt = %s, want now", queued.NextAttemptAt)
	}
	// In the new series, the event is still sent before the later event of its call.
	for _, want := range []uuid.UUID{id, later} {
		work := r.claimAll(r.sub)
		if len(work) != 1 {
			t.Fatalf("claimed deliveries = %d, want 1", len(work))
		}
		wantEqual(t, "claimed delivery", work[0].DeliveryID, want)
		wantEqual(t, "attempt", work[0].Attempt, 1)
		r.settle(deliveries.OutcomeDelivered, work...)
	}
	wantEqual(t, "late result of the replaced series", r.settle(deliveries.OutcomeDelivered, first...), 0)
	wantEqual(t, "queue rows", r.count(`SELECT count(*) FROM delivery_queue`), 0)
}

func (r resendFixture) makeDue() {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), `UPDATE delivery_queue SET due_at = now()`); err != nil {
		r.t.Fatal(err)
	}
}

func TestResend_ReplacesASeriesWhoseRetryIsDue(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	id := r.queued(uuid.New(), 1, "call.completed")
	r.settle(deliveries.OutcomeRetry, r.claimAll(r.sub)...)
	r.makeDue()
	for range 2 { // the second request begins no new series
		queued := r.resend(id)
		wantEqual(t, "replays", queued.Replays, 1)
		wantEqual(t, "attempts with a result", queued.Attempts, 0)
	}
	work := r.claimAll(r.sub)
	if len(work) != 1 {
		t.Fatalf("claimed deliveries = %d, want 1", len(work))
	}
	wantEqual(t, "attempt", work[0].Attempt, 1)
}

func TestResend_DuringAnAttemptBeginsNoSecondSeries(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	id := r.queued(uuid.New(), 1, "call.completed")
	first := r.claimAll(r.sub)
	queued := r.resend(id)
	wantEqual(t, "replays during the first attempt", queued.Replays, 0)
	wantEqual(t, "stored results of the first attempt", r.settle(deliveries.OutcomeRetry, first...), 1)

	r.makeDue()
	second := r.claimAll(r.sub)
	if _, err := r.store.Resend(t.Context(), r.ws, id, ""); !errors.Is(err, store.ErrInProgress) {
		t.Errorf("Resend during the second attempt = %v, want ErrInProgress", err)
	}
	wantEqual(t, "stored results of the second attempt", r.settle(deliveries.OutcomeDelivered, second...), 1)
	wantEqual(t, "queue rows", r.count(`SELECT count(*) FROM delivery_queue`), 0)
}

func TestResend_ConcurrentRequestsBeginOneSeriesOfAttempts(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]deliveries.Outcome{
		"ended": deliveries.OutcomeFailed, "waiting for a retry": deliveries.OutcomeRetry,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResendFixture(t)
			id := r.queued(uuid.New(), 1, "call.completed")
			r.settle(outcome, r.claimAll(r.sub)...)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					if i%4 == 0 {
						if _, err := r.store.ReplayPeriod(
							t.Context(),
							r.ws,
							r.sub,
							store.Period{Until: time.Now().AddDate(1, 0, 0)},
						); err != nil {
							t.Errorf("ReplayPeriod: %v", err)
						}
						return
					}
					if _, err := r.store.Resend(t.Context(), r.ws, id, ""); err != nil {
						t.Errorf("Resend: %v", err)
					}
				})
			}
			all.Wait()
			work := r.claimAll(r.sub)
			if len(work) != 1 {
				t.Fatalf("claimed deliveries = %d, want 1", len(work))
			}
			wantEqual(t, "replay", work[0].Replay, 1)
		})
	}
}

func TestResend_RefusesDeliveriesThatCannotBeSent(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	call := uuid.New()
	id := r.queued(call, 1, "call.completed")
	r.settle(deliveries.OutcomeDelivered, r.claimAll(r.sub)...)
	for _, workspace := range []uuid.UUID{uuid.New(), r.ws} {
		unknown := id
		if workspace == r.ws {
			unknown = deliveries.ID(r.sub, uuid.New(), time.Now())
		}
		if _, err := r.store.Resend(t.Context(), workspace, unknown, ""); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("Resend of an unknown delivery = %v, want ErrNotFound", err)
		}
	}
	for _, status := range []subscriptions.Status{subscriptions.Paused, subscriptions.Failed} {
		if _, err := r.pool.Exec(
			t.Context(),
			`UPDATE subscriptions SET status = $1, failed_at = CASE $1 WHEN 'failed' THEN now() END,
			failed_reason = CASE $1 WHEN 'failed' THEN 'x' END`,
			status,
		); err != nil {
			t.Fatal(err)
		}
		_, resent := r.store.Resend(t.Context(), r.ws, id, "")
		_, replayed := r.store.ReplayPeriod(t.Context(), r.ws, r.sub, store.Period{Until: time.Now().AddDate(1, 0, 0)})
		for _, err := range []error{resent, replayed} {
			var refused *apierr.Error
			if !errors.As(err, &refused) {
				t.Fatalf("error of a %s subscription = %v, want subscription_not_active", status, err)
			}
			wantEqual(t, "code", refused.Code, "subscription_not_active")
		}
	}
	if err := r.setStatus(r.ws, r.sub, subscriptions.Active); err != nil {
		t.Fatal(err)
	}
	r.eraseCall(
		store.Erasure{
			ID:          uuid.New(),
			WorkspaceID: r.ws,
			CallID:      call,
			EventIDs:    []uuid.UUID{uuid.NewSHA1(call, []byte("call.completed"))},
		},
	)
	if _, err := r.store.Resend(t.Context(), r.ws, id, ""); !errors.Is(err, store.ErrErased) {
		t.Errorf("Resend after the erasure = %v, want ErrErased", err)
	}
	wantEqual(t, "replayed deliveries after the erasure", r.replay(store.Period{}), 0)
	if err := r.store.Delete(t.Context(), r.ws, r.sub); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Resend(t.Context(), r.ws, id, ""); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("Resend after the deletion = %v, want ErrNotFound", err)
	}
	wantEqual(t, "queue rows", r.count(`SELECT count(*) FROM delivery_queue`), 0)
}

func TestReplayPeriod_SelectsEndedDeliveriesByTheTimeOfTheirEvent(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	base := time.Unix(1780574400, 0).UTC()
	delivered := r.queued(uuid.New(), 1, "call.completed")
	r.settle(deliveries.OutcomeDelivered, r.claimAll(r.sub)...)
	failed := r.queued(uuid.New(), 2, "call.completed")
	r.settle(deliveries.OutcomeFailed, r.claimAll(r.sub)...)
	if err := r.setStatus(r.ws, r.sub, subscriptions.Paused); err != nil {
		t.Fatal(err)
	}
	skipped := r.queued(uuid.New(), 3, "call.completed")
	if err := r.setStatus(r.ws, r.sub, subscriptions.Active); err != nil {
		t.Fatal(err)
	}
	test, err := deliveries.NewTest(uuid.New(), r.ws, r.sub, base.Add(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.EnqueueTest(t.Context(), r.sub, test); err != nil { // no period includes a test event
		t.Fatalf("EnqueueTest: %v", err)
	}
	r.settle(deliveries.OutcomeFailed, r.claimAll(r.sub)...)
	waiting := r.queued(uuid.New(), 4, "call.completed")
	r.settle(deliveries.OutcomeRetry, r.claimAll(r.sub)...)
	for _, tt := range []struct {
		name   string
		period store.Period
		want   []uuid.UUID
	}{
		{"all that ended", store.Period{}, []uuid.UUID{delivered, failed, skipped}},
		{"only failed", store.Period{OnlyFailed: true}, []uuid.UUID{failed}},
		{"since is inclusive", store.Period{Since: base.Add(2 * time.Second)}, []uuid.UUID{failed, skipped}},
		{"until is exclusive", store.Period{Until: base.Add(2 * time.Second)}, []uuid.UUID{delivered}},
		{"an empty period", store.Period{Since: base.Add(time.Hour)}, nil},
	} {
		wantEqual(t, tt.name, r.replay(tt.period), len(tt.want))
		wantEqual(t, tt.name+", repeated while they are queued", r.replay(tt.period), 0)
		work := r.claimAll(r.sub)
		for i, w := range work {
			if i < len(tt.want) {
				wantEqual(t, tt.name+": delivery", w.DeliveryID, tt.want[i])
			}
		}
		wantEqual(t, tt.name+": claimed deliveries", len(work), len(tt.want))
		r.settle(deliveries.OutcomeDelivered, work...)
		const restore = `
			UPDATE deliveries SET status = CASE id WHEN $1 THEN 'failed' WHEN $2 THEN 'skipped' ELSE status END`
		if _, err := r.pool.Exec(t.Context(), restore, failed, skipped); err != nil {
			t.Fatal(err)
		}
	}
	row, err := r.store.DeliveryOf(t.Context(), r.ws, waiting)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "replays of the delivery that waits for a retry", row.Replays, 0)
}

func TestReplayPeriod_QueuesAllDeliveriesOrNone(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	insert := func(n int) {
		t.Helper()
		if _, err := r.pool.Exec(t.Context(), `WITH e AS (
				INSERT INTO events (id, created_at, workspace_id, type, sequence, body)
				SELECT gen_random_uuid(), now() - interval '1 hour', $1, 'call.ringing', 1, '{}'
				FROM generate_series(1, $3::int) n RETURNING *)
			INSERT INTO deliveries (id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, status,
				done_at)
			SELECT gen_random_uuid(), created_at, workspace_id, $2, id, type, 1, 'failed', created_at FROM e`,
			r.ws, r.sub, n); err != nil {
			t.Fatal(err)
		}
	}
	insert(store.MaxReplay + 1)
	if _, err := r.store.ReplayPeriod(
		t.Context(),
		r.ws,
		r.sub,
		store.Period{Until: time.Now()},
	); !errors.Is(
		err,
		store.ErrTooMany,
	) {
		t.Errorf("ReplayPeriod of %d deliveries = %v, want ErrTooMany", store.MaxReplay+1, err)
	}
	wantEqual(t, "queue rows", r.count(`SELECT count(*) FROM delivery_queue`), 0)
	if _, err := r.pool.Exec(
		t.Context(),
		`DELETE FROM deliveries WHERE id = (SELECT id FROM deliveries LIMIT 1)`,
	); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	wantEqual(t, "replayed deliveries", r.replay(store.Period{}), store.MaxReplay)
	t.Logf("a replay of %d deliveries took %s", store.MaxReplay, time.Since(begun))
	wantEqual(t, "queue rows", r.count(`SELECT count(*) FROM delivery_queue`), store.MaxReplay)
}

// Earlier versions stored deliveries whose id is a UUIDv5, and attempts without a cause.
func TestDeliveryOf_ReturnsDeliveriesThatEarlierVersionsStored(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	id := r.queued(uuid.New(), 1, "call.completed")
	r.settle(deliveries.OutcomeFailed, r.claimAll(r.sub)...)
	old := uuid.NewSHA1(r.sub, id[:])
	for _, sql := range []string{
		`UPDATE deliveries SET id = $1`,
		`UPDATE subscription_health SET last_cause = NULL WHERE $1::uuid IS NOT NULL`,
	} {
		if _, err := r.pool.Exec(t.Context(), sql, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.pool.Exec(
		t.Context(),
		`INSERT INTO attempts (delivery_id, no, at, ms, error) VALUES ($1, 1, now(), 7, 'timeout')`,
		old,
	); err != nil {
		t.Fatal(err)
	}
	row, err := r.store.DeliveryOf(t.Context(), r.ws, old)
	if err != nil {
		t.Fatalf("DeliveryOf: %v", err)
	}
	found, err := r.store.NewestAttempts(t.Context(), false, row)
	if err != nil {
		t.Fatalf("NewestAttempts: %v", err)
	}
	if len(found[old]) != 1 {
		t.Fatalf("attempts = %d, want 1", len(found[old]))
	}
	wantEqual(t, "cause", *found[old][0].CauseText(), "The attempt took too long.")
	sub, err := r.store.Subscription(t.Context(), r.ws, r.sub)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "last failure", *sub.LastFailure(), "The last attempt failed: http_status 500.")
	wantEqual(t, "replayed deliveries", r.replay(store.Period{}), 1)
}

func TestNewestAttempts_ReturnsAtMost50Attempts(t *testing.T) {
	t.Parallel()
	r := newResendFixture(t)
	id := r.queued(uuid.New(), 1, "call.completed")
	if _, err := r.pool.Exec(t.Context(), `INSERT INTO attempts (delivery_id, replay, no, at, ms)
		SELECT $1, n / 5, n % 5 + 1, now() + n * interval '1 second', n FROM generate_series(0, 99) n`, id); err != nil {
		t.Fatal(err)
	}
	row, err := r.store.DeliveryOf(t.Context(), r.ws, id)
	if err != nil {
		t.Fatal(err)
	}
	found, err := r.store.NewestAttempts(t.Context(), false, row)
	if err != nil {
		t.Fatal(err)
	}
	if len(found[id]) != 50 {
		t.Fatalf("attempts = %d, want 50", len(found[id]))
	}
	wantEqual(t, "oldest attempt", found[id][0].Ms, 50)
	wantEqual(t, "newest attempt", found[id][49].Ms, 99)
}
