package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

type replayFixture struct {
	*fixture
	ws  uuid.UUID
	sub string
}

func newReplayFixture(t *testing.T) *replayFixture {
	t.Helper()
	h, ws := newFixture(t), uuid.New()
	id, _ := h.create(ws)
	return &replayFixture{h, ws, id}
}

func (p *replayFixture) path() string {
	return "/admin/v1/workspaces/" + p.ws.String() + "/webhook-subscriptions/" + p.sub + "/deliveries"
}

func (p *replayFixture) operator(method, path, body string) response {
	p.t.Helper()
	return p.do(serviceauth.Caller{WorkspaceID: p.ws, Operator: "eve"}, method, path, body)
}

func (p *replayFixture) replay(body string) response {
	p.t.Helper()
	return p.operator(http.MethodPost, p.path()+"/replay", body)
}

func (p *replayFixture) event(call uuid.UUID, sequence int32) uuid.UUID {
	p.t.Helper()
	return p.eventOf("call.completed", call, sequence)
}

func (p *replayFixture) eventOf(event string, object uuid.UUID, sequence int32) uuid.UUID {
	p.t.Helper()
	ev := deliveries.Event{
		ID: uuid.New(), WorkspaceID: p.ws, ObjectID: &object, Type: event, Sequence: sequence,
		Body: []byte(`{}`), CreatedAt: time.Unix(1780574400+int64(sequence), 0),
	}
	if err := pgx.BeginFunc(p.t.Context(), p.pool, func(tx pgx.Tx) error {
		_, err := p.store.Ingest(p.t.Context(), tx, ev)
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
	return deliveries.ID(uuid.MustParse(p.sub), ev.ID, ev.CreatedAt)
}

func claimUpTo(sub string, most int) store.Claim {
	quota := store.Quota{SubscriptionID: uuid.MustParse(sub), Total: most, Retries: most}
	return store.Claim{Quotas: []store.Quota{quota}, Lease: time.Minute, Attempts: 5}
}

func (p *replayFixture) sendAll(outcome deliveries.Outcome) []deliveries.Work {
	p.t.Helper()
	claimed, err := p.store.ClaimDue(p.t.Context(), claimUpTo(p.sub, 5000))
	if err != nil {
		p.t.Fatal(err)
	}
	p.settle(claimed.Work, outcome)
	return claimed.Work
}

func (p *replayFixture) settle(work []deliveries.Work, outcome deliveries.Outcome) int {
	p.t.Helper()
	results := make([]deliveries.Result, len(work))
	for i, w := range work {
		results[i] = deliveries.Result{DeliveryID: w.DeliveryID, Attempt: w.Attempt, Replay: w.Replay, Outcome: outcome, Response: deliveries.Response{Code: 500, Failure: deliveries.BadStatus, At: time.Now()}}
	}
	done, err := p.store.Complete(p.t.Context(), results)
	if err != nil {
		p.t.Fatal(err)
	}
	return done.Settled
}

func (p *replayFixture) setStatus(status string) {
	p.t.Helper()
	if got := p.customer(p.ws, http.MethodPatch, collection+"/"+p.sub, `{"status":"`+status+`"}`); got.status != 200 {
		p.t.Fatalf("PATCH to %s = %d %v", status, got.status, got.body)
	}
}

func (p *replayFixture) awaitLocked(want int) {
	p.t.Helper()
	const waiting = `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`
	testkit.NoError(p.t, func() error {
		var n int
		if err := p.pool.QueryRow(p.t.Context(), waiting).Scan(&n); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("statements that wait for a lock = %d, want %d", n, want)
		}
		return nil
	})
}

func (p *replayFixture) requireReplayed(what string, got response, replayed int, more bool) {
	p.t.Helper()
	wantStatus(p.t, what, got, 202, "")
	if diff := cmp.Diff(map[string]any{"replayed": float64(replayed), "has_more": more}, got.body); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const longAgo = `"since":"2026-01-01T00:00:00Z"`

func TestReplay_AttemptsOfAReplayedDeliveryAreCountedFromOne(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	id := p.event(uuid.New(), 1)
	path := p.path() + "/" + id.String()
	p.requireReplayed("replay of what is queued", p.operator(http.MethodPost, path+"/replay", ""), 0, false)
	p.requireReplayed("with a body of nothing", p.operator(http.MethodPost, path+"/replay", "\n"), 0, false)
	before := p.sendAll(deliveries.OutcomeFailed)
	for round := 1; round <= 2; round++ {
		p.requireReplayed("replay", p.operator(http.MethodPost, path+"/replay", `{}`), 1, false)
		p.requireReplayed("the same again", p.operator(http.MethodPost, path+"/replay", ""), 0, false)
		shown := p.operator(http.MethodGet, path, "")
		wantEqual(t, "status", shown.text("status"), "queued")
		wantEqual(t, "attempts", shown.body["attempts"], any(0.0))
		wantEqual(t, "replays", shown.body["replays"], any(float64(round)))
		wantEqual(t, "done_at", shown.body["done_at"], nil)
		work := p.sendAll(deliveries.OutcomeDelivered)
		if len(work) != 1 {
			t.Fatalf("deliveries claimed after replay %d = %d, want 1", round, len(work))
		}
		wantEqual(t, "claimed delivery", work[0].DeliveryID, id)
		wantEqual(t, "claimed event", work[0].EventID, before[0].EventID)
		wantEqual(t, "attempt", work[0].Attempt, 1)
		wantEqual(t, "replay", work[0].Replay, round)
		wantEqual(t, "body", string(work[0].Body), `{}`)
	}
	shown := p.operator(http.MethodGet, path, "")
	history, _ := shown.body["history"].([]any)
	var rounds []string
	for _, item := range history {
		try := item.(map[string]any)
		rounds = append(rounds, fmt.Sprint(try["replay"], try["attempt"]))
	}
	wantEqual(t, "status", shown.text("status"), "delivered")
	wantList(t, "round and number of each attempt", rounds, []string{"0 1", "1 1", "2 1"})
}

// A process stores the result of an attempt after the delivery was replayed. This result must be
// ignored.
func TestReplay_IgnoresResultsOfEarlierAttempts(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	id := p.event(uuid.New(), 1)
	stale := p.sendAll(deliveries.OutcomeFailed)
	p.requireReplayed("replay", p.operator(http.MethodPost, p.path()+"/"+id.String()+"/replay", ""), 1, false)
	claimed, err := p.store.ClaimDue(t.Context(), claimUpTo(p.sub, 1))
	if err != nil {
		t.Fatalf("ClaimDue: %v", err)
	}
	fresh := claimed.Work
	if len(fresh) != 1 {
		t.Fatalf("claimed deliveries = %d, want 1", len(fresh))
	}
	wantEqual(t, "attempt of the replay", fresh[0].Attempt, stale[0].Attempt)
	if n := p.settle(stale, deliveries.OutcomeFailed); n != 0 {
		t.Errorf("stored results of an attempt before the replay = %d, want 0", n)
	}
	if n := p.settle(fresh, deliveries.OutcomeDelivered); n != 1 {
		t.Errorf("stored results of the replay = %d, want 1", n)
	}
}

func TestReplay_QueuesAllDeliveriesThatFailedSinceATime(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	p.event(uuid.New(), 1)
	p.sendAll(deliveries.OutcomeDelivered)
	for range 3 {
		p.event(uuid.New(), 1)
	}
	if got := p.customer(p.ws, http.MethodPost, collection+"/"+p.sub+"/test", ""); got.status != 202 {
		t.Fatalf("test = %d", got.status)
	}
	p.sendAll(deliveries.OutcomeFailed)
	cut := time.Now().UTC().Add(time.Hour).Format(time.RFC3339)
	p.requireReplayed("since the future", p.replay(`{"status":"failed","since":"`+cut+`"}`), 0, false)
	p.requireReplayed("before everything", p.replay(`{"status":"failed",`+longAgo+`,"before":"2026-01-02T00:00:00Z"}`), 0, false)

	// While this lock is held, all five requests select the deliveries, but none of them can write.
	gate, err := p.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gate.Rollback(context.Background()) }()
	if _, err := gate.Exec(t.Context(), `SELECT FROM deliveries FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	var replayed atomic.Int64
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			got := p.replay(`{"status":"failed",` + longAgo + `}`)
			n, _ := got.body["replayed"].(float64)
			if got.status != 202 {
				t.Errorf("concurrent replay = %d %v, want 202", got.status, got.body)
			}
			replayed.Add(int64(n))
		})
	}
	p.awaitLocked(5)
	if err := gate.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if n := replayed.Load(); n != 3 {
		t.Errorf("deliveries replayed by five concurrent requests = %d, want 3", n)
	}
	if work := p.sendAll(deliveries.OutcomeFailed); len(work) != 3 {
		t.Errorf("claimed deliveries = %d, want the 3 that failed", len(work))
	}
	// The replayed deliveries have failed again. If the request is repeated with the member
	// `before`, it must replay nothing. Without `before`, it must replay the deliveries again.
	var moment time.Time
	if err := p.pool.QueryRow(t.Context(), `SELECT min(done_at) FROM deliveries WHERE replays = 1`).Scan(&moment); err != nil {
		t.Fatal(err)
	}
	p.requireReplayed("repeated with before", p.replay(`{"status":"failed",`+longAgo+`,"before":"`+moment.UTC().Format(time.RFC3339Nano)+`"}`), 0, false)
	p.requireReplayed("repeated without before", p.replay(`{"status":"failed",`+longAgo+`}`), 3, false)
}

func TestReplay_SendsTheEventsOfACallInSequenceOrder(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	call := uuid.New()
	second := p.event(call, 2)
	p.sendAll(deliveries.OutcomeFailed)
	first := p.event(call, 1)
	p.event(uuid.New(), 1)
	p.sendAll(deliveries.OutcomeDelivered)
	body := `{"call_id":"` + call.String() + `"}`
	p.requireReplayed("replay of a call", p.replay(body), 2, false)
	p.requireReplayed("the same again", p.replay(body), 0, false)
	p.requireReplayed("another call", p.replay(`{"call_id":"`+uuid.NewString()+`"}`), 0, false)
	for _, want := range []uuid.UUID{first, second} {
		var claimed []uuid.UUID
		for _, work := range p.sendAll(deliveries.OutcomeDelivered) {
			claimed = append(claimed, work.DeliveryID)
		}
		wantList(t, "claimed deliveries of the call", claimed, []uuid.UUID{want})
	}
	if got := p.operator(http.MethodGet, p.path()+"?call_id="+call.String(), ""); len(got.list()) != 2 {
		t.Errorf("deliveries of the call = %v", got.body)
	}
}

func TestReplay_QueuesDeliveriesThatWereSkippedDuringAPause(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	p.setStatus("paused")
	left := []string{p.event(uuid.New(), 1).String(), p.event(uuid.New(), 2).String()}
	for _, refused := range []response{
		p.replay(`{"status":"skipped",` + longAgo + `}`), p.replay(`{"call_id":"` + uuid.NewString() + `"}`),
		p.operator(http.MethodPost, p.path()+"/"+left[0]+"/replay", ""),
	} {
		wantStatus(t, "replay while paused", refused, 409, "subscription_not_active")
	}
	p.setStatus("active")
	if n := len(p.sendAll(deliveries.OutcomeDelivered)); n != 0 {
		t.Fatalf("deliveries sent after the resumption = %d, want 0", n)
	}
	p.requireReplayed("failed are not skipped", p.replay(`{"status":"failed",`+longAgo+`}`), 0, false)
	p.requireReplayed("replay of what was skipped", p.replay(`{"status":"skipped",`+longAgo+`}`), 2, false)
	p.requireReplayed("the same again", p.replay(`{"status":"skipped",`+longAgo+`}`), 0, false)
	p.setStatus("paused") // a replayed delivery is held while the subscription is paused
	if got := p.operator(http.MethodGet, p.path()+"?status=held", ""); len(got.list()) != 2 {
		t.Errorf("held deliveries = %v, want 2", got.body)
	}
	p.setStatus("active")
	if n := len(p.sendAll(deliveries.OutcomeDelivered)); n != 2 {
		t.Errorf("sent deliveries = %d, want 2", n)
	}
}

func TestReplay_IsLimitedTo1000Deliveries(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	if _, err := p.pool.Exec(t.Context(), `WITH e AS (
			INSERT INTO events (id, created_at, workspace_id, type, sequence, body)
			SELECT gen_random_uuid(), now() - n * interval '1 minute', $1, 'call.busy', 1, '{}' FROM generate_series(1, 1001) n RETURNING *)
		INSERT INTO deliveries (id, created_at, workspace_id, subscription_id, event_id, event_type, sequence, status, done_at)
		SELECT id, created_at, workspace_id, $2, id, type, 1, 'failed', created_at FROM e`, p.ws, p.sub); err != nil {
		t.Fatal(err)
	}
	p.requireReplayed("first batch", p.replay(`{"status":"failed",`+longAgo+`}`), 1000, true)
	if got := p.operator(http.MethodGet, p.path()+"?status=failed", ""); len(got.list()) != 1 {
		t.Errorf("failed deliveries = %v, want the one that failed last", got.body)
	}
	p.requireReplayed("second batch", p.replay(`{"status":"failed",`+longAgo+`}`), 1, false)
	if n := len(p.sendAll(deliveries.OutcomeDelivered)); n != 1001 {
		t.Errorf("sent deliveries = %d, want 1001", n)
	}
}

func TestReplay_RejectsInvalidRequests(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	for name, body := range map[string]string{
		"not JSON": `{`, "no selection": `{}`, "a status without since": `{"status":"failed"}`,
		"since without a status":      `{` + longAgo + `}`,
		"a status that has not ended": `{"status":"queued",` + longAgo + `}`, "delivered": `{"status":"delivered",` + longAgo + `}`,
		"since without an offset": `{"status":"failed","since":"2026-01-01T00:00:00"}`, "before that is no time": `{"status":"failed",` + longAgo + `,"before":"now"}`,
		"a call and a status":       `{"call_id":"` + uuid.NewString() + `","status":"failed"}`,
		"a call_id that is no UUID": `{"call_id":"seven"}`,
		"a call id in braces":       `{"call_id":"{` + uuid.NewString() + `}"}`,
		"the zero call id":          `{"call_id":"` + uuid.Nil.String() + `"}`,
	} {
		wantStatus(t, name, p.replay(body), 422, "validation_error")
	}
	id := p.event(uuid.New(), 1)
	p.sendAll(deliveries.OutcomeFailed)
	for name, path := range map[string]string{
		"unknown": p.path() + "/" + uuid.NewString() + "/replay", "no UUID": p.path() + "/seven/replay",
		"a delivery of another subscription": "/admin/v1/workspaces/" + p.ws.String() + "/webhook-subscriptions/" +
			uuid.NewString() + "/deliveries/" + id.String() + "/replay",
		"an unknown subscription": "/admin/v1/workspaces/" + p.ws.String() + "/webhook-subscriptions/" +
			uuid.NewString() + "/deliveries/replay",
	} {
		wantStatus(t, name, p.operator(http.MethodPost, path, `{`), 404, "not_found")
	}
	other := uuid.New()
	for _, path := range []string{"/deliveries/replay", "/deliveries/" + id.String() + "/replay"} {
		path = "/admin/v1/workspaces/" + other.String() + "/webhook-subscriptions/" + p.sub + path
		if got := p.do(serviceauth.Caller{WorkspaceID: other, Operator: "eve"}, http.MethodPost, path, `{"status":"failed",`+longAgo+`}`); got.status != 404 {
			t.Errorf("replay in another workspace = %d %v, want 404", got.status, got.body)
		}
	}
	if got := p.customer(p.ws, http.MethodPost, p.path()+"/replay", `{"status":"failed",`+longAgo+`}`); got.status != 401 {
		t.Errorf("replay by a customer = %d, want 401", got.status)
	}
	if _, err := p.pool.Exec(t.Context(), `DELETE FROM events`); err != nil {
		t.Fatal(err)
	}
	if got := p.operator(http.MethodPost, p.path()+"/"+id.String()+"/replay", ""); got.status != 404 {
		t.Errorf("replay without a stored body = %d %v, want 404", got.status, got.body)
	}
	p.requireReplayed("all failed without a body", p.replay(`{"status":"failed",`+longAgo+`}`), 0, false)
}
