package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

const secret = "Xylophone"

func secretRequest(workspace uuid.UUID, number int) dialqueue.Request {
	r := aRequest(workspace, number)
	r.Variables, r.TimeZone = []byte(`{"name":"`+secret+`"}`), secret
	return r
}

// publishedEvents returns the names of the dial events and erasure reports in the outbox. The name
// of an event that contains the person's data has the suffix "with the secret".
func publishedEvents(t *testing.T, pool *pgxpool.Pool, key string) (names []string) {
	t.Helper()
	rows, err := pool.Query(t.Context(),
		"SELECT topic, payload FROM outbox WHERE position($1 in encode(payload, 'escape')) > 0 ORDER BY id", key)
	if err != nil {
		t.Fatal(err)
	}
	var topic string
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&topic, &payload}, func() error {
		name := topic
		if topic == "dial-events.v1" {
			var event eventv1.DialEvent
			if err := proto.Unmarshal(payload, &event); err != nil {
				return err
			}
			name = string(event.ProtoReflect().WhichOneof(event.ProtoReflect().Descriptor().Oneofs().Get(0)).Name())
		}
		if strings.Contains(string(payload), secret) {
			name += " with the secret"
		}
		names = append(names, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func erase(t *testing.T, pool *pgxpool.Pool, st *store.Store, id uuid.UUID, e store.Erasure) {
	t.Helper()
	runTx(t, pool, func(tx pgx.Tx) error { return st.EraseRequest(t.Context(), tx, id, e) })
}

func countSecrets(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return countRows(t, pool, `SELECT (SELECT count(*) FROM dial_queue WHERE variables::text LIKE '%`+secret+`%')
		+ (SELECT count(*) FROM calls WHERE variables::text LIKE '%`+secret+`%' OR turns::text LIKE '%`+secret+`%' OR time_zone = '`+secret+`')
		+ (SELECT count(*) FROM opt_outs WHERE evidence LIKE '%`+secret+`%')`)
}

func TestEraseRequest_QueuedRequestsEndAsBlocked(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	e := store.Erasure{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace}
	ahead, claimed, other := secretRequest(workspace, 1), secretRequest(workspace, 2), secretRequest(workspace, 3)
	ahead.DueAt = time.Now().Add(time.Hour)
	enqueue(t, pool, st, claimed)
	taken := claimRequests(t, st, 1)
	if got := len(taken); got != 1 {
		t.Fatalf("claimed requests = %d, want 1", got)
	}
	claimed = taken[0]
	enqueue(t, pool, st, ahead, other)
	for range 2 { // the second erasure must change nothing
		erase(t, pool, st, ahead.CallRequestID, e)
		erase(t, pool, st, claimed.CallRequestID, e)
	}
	if n := countRows(t, pool, "SELECT count(*) FROM dial_queue WHERE state = 'blocked' AND variables IS NULL"); n != 2 {
		t.Errorf("blocked requests without variables = %d, want 2", n)
	}
	for _, r := range []dialqueue.Request{ahead, claimed} {
		if got := strings.Join(publishedEvents(t, pool, r.CallRequestID.String()),
			", "); got != "blocked, erasure-reports.v1, erasure-reports.v1" {
			t.Errorf("events of a queued request = %q, want one blocked and two reports", got)
		}
	}
	if n := inUse(t, pool); n != 0 {
		t.Errorf("requests in use = %d, want 0", n)
	}
	if err := st.Fence(t.Context(), claimed, uuid.Must(uuid.NewV7()), "+15005550006", "sim"); err == nil {
		t.Error("Fence of a request of an erased person succeeded, want an error")
	}
	runTx(t, pool, func(tx pgx.Tx) error {
		added, err := st.Enqueue(t.Context(), tx, ahead, claimed)
		if slices.Contains(added, true) {
			t.Errorf("erased requests that were added again = %v, want none", added)
		}
		return err
	})
	if n := countSecrets(t, pool); n != 1 {
		t.Errorf("rows with personal data = %d, want only the row of the other person", n)
	}
	if got := claimRequests(t, st, 5); len(got) != 1 {
		t.Errorf("claim: length of got = %d, want 1", len(got))
	} else if got[0].CallRequestID != other.CallRequestID {
		t.Errorf("claim: got[0].CallRequestID = %v, want %v", got[0].CallRequestID, other.CallRequestID)
	}
}

func TestEraseRequest_LiveCallEndsWithoutPersonalData(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	e := store.Erasure{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace}
	r, other := secretRequest(workspace, 1), secretRequest(workspace, 2)
	mine, theirs := fenced(t, pool, st, r), fenced(t, pool, st, other)
	now := time.Now()
	both := func(f func(*callstate.Call)) {
		t.Helper()
		err := st.Change(t.Context(), []uuid.UUID{mine, theirs}, func(calls map[uuid.UUID]*callstate.Call) {
			f(calls[mine])
			f(calls[theirs])
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	both(func(c *callstate.Call) {
		c.Initiate(now)
		c.Answer(now.Add(time.Second))
		c.Hear("Hello, this is "+secret+". I am interested in lamps.", now.Add(2*time.Second))
	})
	erase(t, pool, st, r.CallRequestID, e)
	both(func(c *callstate.Call) {
		c.Hear("Still "+secret+". Goodbye.", now.Add(3*time.Second))
		c.End(callstate.End{At: now.Add(4 * time.Second), Cause: callstate.NormalClearing, Zone: time.UTC})
	})
	if got := strings.Join(publishedEvents(t, pool, mine.String()), ", "); got != "dialing, answered, ended, analysed" {
		t.Errorf("events of the erased person's call = %q", got)
	}
	if got := strings.Join(publishedEvents(t, pool, theirs.String()),
		", "); got != "dialing, answered, ended, analysed with the secret" {
		t.Errorf("events of the other person's call = %q", got)
	}
	if n := countRows(t, pool,
		"SELECT count(*) FROM calls WHERE call_id = $1 AND (variables IS NOT NULL OR turns::text <> '[]')", mine); n != 0 {
		t.Error("variables or transcript of the erased call were kept")
	}
	erase(t, pool, st, other.CallRequestID, e) // this request's call ended before the erasure
	if n := countSecrets(t, pool); n != 0 {
		t.Errorf("rows with personal data = %d", n)
	}
	if n := countRows(t, pool, "SELECT count(*) FROM calls WHERE status = 'completed'"); n != 2 {
		t.Errorf("completed calls = %d, want 2", n)
	}
}

func TestOrderErasure_EventErasedFollowsTheEarlierEvents(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	e := store.Erasure{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace}
	const caller = "+14155550111"
	over, live, silent, foreign := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	arrive := func(id, workspace uuid.UUID, from string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, ringing_at, max_call_seconds, deadline_at)
			VALUES ($1, $2, 'inbound', $3, '+14155550100', $1, 'ringing', now(), 600, now() + interval '1 hour')`, id, workspace, from)
		if err != nil {
			t.Fatal(err)
		}
	}
	arrive(over, workspace, caller)
	arrive(live, workspace, caller)
	arrive(silent, workspace, caller)
	arrive(foreign, uuid.Must(uuid.NewV7()), caller)
	now := time.Now()
	talk := func(ends bool, ids ...uuid.UUID) {
		t.Helper()
		err := st.Change(t.Context(), ids, func(calls map[uuid.UUID]*callstate.Call) {
			for _, c := range calls {
				c.Answer(now)
				c.Hear("Hello, this is "+secret+". I am interested in lamps.", now)
				if ends {
					c.End(callstate.End{At: now.Add(time.Second), Cause: callstate.NormalClearing, Zone: time.UTC})
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	talk(true, over, foreign)
	talk(false, live)
	if _, err := pool.Exec(t.Context(), `INSERT INTO opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at, acknowledged_at) VALUES ($1, $2, $3, $4, now(), now())`,
		over, workspace, caller, secret); err != nil {
		t.Fatal(err)
	}
	since := uuid.Must(uuid.NewV7())
	for n := range 2 {
		if n == 1 { // the person calls again, and the same erasure is ordered again
			arrive(since, workspace, caller)
			talk(true, since)
		}
		runTx(t, pool, func(tx pgx.Tx) error { return st.OrderErasure(t.Context(), tx, caller, e) })
		eraseCalls(t, st, 100)
	}
	talk(true, live, silent)
	for id, want := range map[uuid.UUID]string{
		// Events that were published before the erasure stay in the outbox. The event `erased` follows
		// them.
		over: "ringing, answered, ended, analysed with the secret, erased, erasure-reports.v1, erased, erasure-reports.v1",
		live: "ringing, answered, erased, erasure-reports.v1, erased, erasure-reports.v1, ended, analysed", since: "ringing, answered, ended, analysed with the secret", silent: "ringing, answered, ended, analysed",
		foreign: "ringing, answered, ended, analysed with the secret",
	} {
		if got := strings.Join(publishedEvents(t, pool, id.String()), ", "); got != want {
			t.Errorf("events = %q, want %q", got, want)
		}
	}
	if n := countSecrets(t, pool); n != 2 {
		t.Errorf("rows with personal data = %d, want those of the other workspace and of the later call", n)
	}
	// The erasure was ordered twice. Each time, it published three events: `erased` for two calls,
	// and a report.
	if n := len(publishedEvents(t, pool, e.ID.String())); n != 6 {
		t.Errorf("outbox rows of the erasure = %d, want 6", n)
	}
}

func TestEraseRequest_RunningAnalysisPublishesNoSummary(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	r := secretRequest(workspace, 1)
	id, now := fenced(t, pool, st, r), time.Now()
	change := func(f func(*callstate.Call)) {
		t.Helper()
		if err := st.Change(t.Context(), []uuid.UUID{id}, func(calls map[uuid.UUID]*callstate.Call) { f(calls[id]) }); err != nil {
			t.Fatal(err)
		}
	}
	change(func(c *callstate.Call) {
		c.Initiate(now)
		c.Answer(now)
		c.Note(agent.Turn{Role: agent.RolePerson, Text: "This is " + secret + ".", At: now})
		c.End(callstate.End{At: now.Add(time.Second), Cause: callstate.NormalClearing, Judged: &agent.Judgement{Outcome: "interested", Reached: "human"}})
	})
	if n := countSecrets(t, pool); n != 1 {
		t.Fatalf("rows with the transcript before the summary = %d, want 1", n)
	}
	erase(t, pool, st, r.CallRequestID, store.Erasure{ID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace})
	name := secret
	change(func(c *callstate.Call) {
		c.Analyse(&agent.Summary{Outcome: "interested", CustomerName: &name}, now.Add(2*time.Second))
	})
	if got := strings.Join(publishedEvents(t, pool, id.String()), ", "); got != "dialing, answered, ended, analysed" {
		t.Errorf("events = %q", got)
	}
	if n := countSecrets(t, pool); n != 0 {
		t.Errorf("rows with personal data = %d", n)
	}
}
