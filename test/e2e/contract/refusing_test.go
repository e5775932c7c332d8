package contract

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit/sharedstack"
)

// placeInOneHour places a call that is due after an hour.
func (w *tenant) placeInOneHour(t *testing.T, to string) (id string) {
	t.Helper()
	return w.write.want(t, 202, "POST", "/v1/calls", w.order(to, "scheduled_for", inOneHour())).text("id")
}

// makeDueQuery makes queued call requests due if the dialer has current copies of the workspace and
// of the agent. It excludes numbers with a recent opt-out, which may not be in the dialer's queue
// yet.
const makeDueQuery = `
WITH due AS (
	UPDATE dialer.dial_queue q SET due_at = now(), look_at = now()
	WHERE q.call_request_id = ANY ($1) AND q.state = 'queued'
		AND EXISTS (SELECT FROM dialer.workspaces copy JOIN gateway.workspaces own ON own.id = copy.workspace_id WHERE own.id = q.workspace_id AND copy.version >= own.version)
		AND EXISTS (SELECT FROM dialer.agents copy JOIN calls.agents own ON own.id = copy.agent_id WHERE own.id = q.agent_id AND copy.version >= own.version)
		AND NOT EXISTS (SELECT FROM dialer.opt_outs o WHERE o.workspace_id = q.workspace_id AND o.phone_e164 = q.to_e164
			AND (o.acknowledged_at IS NULL OR o.acknowledged_at > now() - interval '6 seconds'))
	RETURNING 1
)
SELECT (SELECT count(*) FROM due) + count(*) FROM dialer.dial_queue WHERE call_request_id = ANY ($1) AND state NOT IN ('queued', 'dialing')`

// makeDue makes several call requests in the dialer's queue due at the same time.
func makeDue(t *testing.T, ids ...string) {
	t.Helper()
	db := database(t)
	until(t, "the call requests are in the queue", func() bool {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		var n int
		if err := tx.QueryRow(t.Context(), makeDueQuery, ids).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == len(ids) {
			err = tx.Commit(t.Context())
		}
		return n == len(ids) && err == nil
	})
}

// awaitDequeued waits until a call request has left the dialer's queue. It reads the database,
// because a workspace without API access cannot read its call requests.
func awaitDequeued(t *testing.T, id string) {
	t.Helper()
	db := database(t)
	until(t, "the request leaves the queue", func() (gone bool) {
		if err := db.QueryRow(t.Context(), "SELECT state NOT IN ('queued', 'dialing') FROM dialer.dial_queue WHERE call_request_id = $1", id).Scan(&gone); err != nil {
			t.Fatal(err)
		}
		return gone
	})
}

func database(t *testing.T) *pgx.Conn {
	t.Helper()
	db, err := pgx.Connect(t.Context(), stack(t).database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	return db
}

// wantBlocked makes the call request due and checks that it ends as blocked with the error code.
func (w *tenant) wantBlocked(t *testing.T, id, code string) {
	t.Helper()
	makeDue(t, id)
	got := w.ended(t, id)
	sharedstack.Equal(t, "status", got.text("status"), "blocked")
	sharedstack.Equal(t, "error_code", got.text("error_code"), code)
	sharedstack.Equal(t, "call_id", got.text("call_id"), "")
	if got := w.operator.want(t, 200, "GET", w.admin+"/decisions?call_request_id="+id, nil); !strings.Contains(got.body, `"kind":"dial","result":"closed"`) {
		t.Errorf("the decision of the dial-time check is not stored: %s", got.body)
	}
}

// If a person opts out in a call, the workspace's queued call requests to that person are not
// dialed. The opt-out record names the call as evidence.
func TestOptOut_OptOutDuringACallBlocksQueuedRequests(t *testing.T) {
	w, to := workspace(t), number(96)
	w.topUp(t, "100")
	waits := w.placeInOneHour(t, to)
	heard := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(to)).text("id")).text("call_id")
	var records answer
	// The dialer publishes the opt-out and the end of the call independently. The record of the
	// opt-out can be created after the end.
	until(t, "the opt-out is recorded", func() bool {
		records = w.operator.want(t, 200, "GET", w.admin+"/consent-records?phone="+url.QueryEscape(to), nil)
		return len(records.ids()) > 0
	})
	for _, words := range []string{`"kind":"opt_out"`, `"actor":"call:` + heard + `"`, `"call_id":"` + heard + `"`, `"before":"unknown","after":"dnd"`} {
		if heard == "" {
			t.Errorf("heard = %v, want a value", heard)
		}
		sharedstack.Equal(t, "len(records.ids())", len(records.ids()), 1)
		sharedstack.Contains(t, "strings.ReplaceAll(records.body, ': ', ':')", strings.ReplaceAll(records.body, ": ", ":"), words)
	}
	w.wantBlocked(t, waits, "recipient_dnd")
}

// If an imported list contains a number, queued call requests to the number are not dialed. A
// second import of the same file changes nothing.
func TestOptOut_ImportedOptOutBlocksQueuedRequests(t *testing.T) {
	w, to := workspace(t), number(1)
	w.topUp(t, "100")
	waits := w.placeInOneHour(t, to)
	file := "sep=;\r\nName, first;Phone\r\nAnn;" + to + "\r\n=1+1;nobody\r\n"
	for _, want := range []string{"record_id", "same_as"} {
		list := w.operator.want(t, 201, "POST", w.admin+"/opt-out-imports", set{"reason": "a register"}).text("id")
		path := w.admin + "/opt-out-imports/" + list
		w.operator.want(t, 200, "PUT", path+"/parts/2", file[30:])
		w.operator.want(t, 200, "PUT", path+"/parts/1", file[:30])
		w.operator.want(t, 202, "POST", path+"/start", nil)
		var got answer
		until(t, "the import is done", func() bool {
			got = w.operator.want(t, 200, "GET", path, nil)
			return got.text("status") == "done"
		})
		if got.text(want) == "" {
			t.Errorf("got.text(want) = %v, want a value", got.text(want))
		}
		sharedstack.Contains(t, "got.body", got.body, `"lines":4,"numbers":1,`)
		sharedstack.Contains(t, "got.body", got.body, `"bad":1,"bad_rows":[{"line":4,"value":"nobody"`)
	}
	if records := w.operator.want(t, 200, "GET", w.admin+"/consent-records?phone="+url.QueryEscape(to), nil); len(records.ids()) != 1 {
		t.Errorf("records = %s, want only the record of the import", records.body)
	}
	w.wantBlocked(t, waits, "recipient_dnd")
}
