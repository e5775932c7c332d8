package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/dialer/internal/dialqueue"
)

func TestEnqueueOverdue_ReturnsTheStateOfTheRequest(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace, reportedAt := newStore(pool), uuid.Must(uuid.NewV7()), time.Now()
	ago := func(d time.Duration) *time.Time { at := reportedAt.Add(-d); return &at }
	for n, tt := range []struct {
		name, was string // was is the stored state, or "" if the dialer does not have the request
		ended     *time.Time
		want      dialqueue.Found
		is        string
	}{
		{name: "the request never arrived", was: "", ended: nil, want: dialqueue.Lost, is: "queued"},
		{name: "the request is queued", was: "queued", ended: nil, want: dialqueue.Waiting, is: "queued"},
		{name: "the request is dialing", was: "dialing", ended: nil, want: dialqueue.Waiting, is: "dialing"},
		{
			name: "the request ended just before it was published again", was: "failed", ended: ago(30 * time.Second),
			want: dialqueue.Waiting, is: "failed",
		},
		{
			name: "the request ended after it was published again", was: "failed", ended: ago(-time.Hour),
			want: dialqueue.Waiting, is: "failed",
		},
		{name: "the request ended long before it was published again",
			was: "failed", ended: ago(2 * time.Minute), want: dialqueue.Over, is: "failed"},
	} {
		r := aRequest(workspace, n)
		if tt.was != "" {
			enqueue(t, pool, st, r)
			if _, err := pool.Exec(t.Context(), `UPDATE dial_queue SET state = $2, ended_at = $3 WHERE call_request_id = $1`, r.CallRequestID, tt.was, tt.ended); err != nil {
				t.Fatal(err)
			}
		}
		runTx(t, pool, func(tx pgx.Tx) error {
			found, err := st.EnqueueOverdue(t.Context(), tx, r, reportedAt, false)
			if err == nil && found != tt.want {
				t.Errorf("%s: EnqueueOverdue = %s, want %s", tt.name, found, tt.want)
			}
			return err
		})
		if countRows(t, pool, `SELECT count(*) FROM dial_queue WHERE call_request_id = $1 AND state = $2`,
			r.CallRequestID, tt.is) != 1 {
			t.Errorf("%s: the state of the request is not %s", tt.name, tt.is)
		}
	}
}

// The service `calls` can lose the event of a request's end. It then publishes the request again,
// and the dialer must publish the terminal event again.
func TestEnqueueOverdue_RepublishesTheTerminalEvent(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	now := time.Now()
	withdrawn, blocked, unknown := aRequest(workspace, 1), aRequest(workspace, 2), aRequest(workspace, 3)
	enqueue(t, pool, st, withdrawn, blocked)
	if _, err := st.WithdrawNow(t.Context(), withdrawn.CallRequestID, workspace); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(),
		`UPDATE dial_queue SET state = 'blocked', ended_at = now() WHERE call_request_id = $1`,
		blocked.CallRequestID); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(),
		`UPDATE dial_queue SET ended_at = now() - interval '1 hour' WHERE ended_at IS NOT NULL`); err != nil {
		t.Fatal(err)
	}
	for _, r := range []dialqueue.Request{withdrawn, blocked, unknown} {
		runTx(t, pool, func(tx pgx.Tx) error {
			_, err := st.EnqueueOverdue(t.Context(), tx, r, now, true)
			return err
		})
	}
	const published = `SELECT count(*) FROM outbox WHERE key = $1 AND topic = 'dial-events.v1'`
	if got := countRows(t, pool, published, withdrawn.CallRequestID.String()); got != 2 {
		t.Errorf("events of the withdrawn request = %d, want 2", got)
	}
	const ids = `SELECT count(DISTINCT event_id) FROM outbox WHERE key = $1`
	if got := countRows(t, pool, ids, withdrawn.CallRequestID.String()); got != 1 {
		t.Errorf("event ids of the withdrawn request = %d, want 1", got)
	}
	const day = `SELECT count(*) FROM outbox o JOIN dial_queue q ON q.call_request_id::text = convert_from(o.key, 'UTF8')
		WHERE q.call_request_id = $1 AND abs(extract(epoch FROM (o.headers->>'ce_time')::timestamptz - q.ended_at)) < 0.001`
	if got := countRows(t, pool, day, blocked.CallRequestID); got != 1 {
		t.Errorf("events of the blocked request with the time of its end = %d, want 1", got)
	}
	if got := countRows(t, pool, `SELECT count(*) FROM dial_queue WHERE call_request_id = $1`,
		unknown.CallRequestID); got != 0 {
		t.Errorf("EnqueueOverdue with endOnly enqueued the request")
	}
}
