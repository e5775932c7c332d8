package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/dialer/internal/request"
)

// TestEnqueueOverdue_SaysHowItWasFound: a campaign that is still being dialled waits, and so does what has just ended; what never came is queued now; what
// ended long before was told to nobody who listened.
func TestEnqueueOverdue_SaysHowItWasFound(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace, told := newStore(pool), uuid.Must(uuid.NewV7()), time.Now()
	ago := func(d time.Duration) *time.Time { at := told.Add(-d); return &at }
	for n, tt := range []struct {
		name, was string // nothing: it never came
		ended     *time.Time
		want      request.Found
		is        string
	}{
		{"it never came", "", nil, request.Lost, "queued"},
		{"it is queued", "queued", nil, request.Waiting, "queued"},
		{"it is being dialled", "dialing", nil, request.Waiting, "dialing"},
		{"it ended just before it was told of again", "failed", ago(30 * time.Second), request.Waiting, "failed"},
		{"it ended after it was told of again", "failed", ago(-time.Hour), request.Waiting, "failed"},
		{"it ended long before", "failed", ago(2 * time.Minute), request.Over, "failed"},
	} {
		r := aRequest(workspace, n)
		if tt.was != "" {
			enqueue(t, pool, st, r)
			if _, err := pool.Exec(t.Context(), `UPDATE dial_queue SET state = $2, ended_at = $3 WHERE call_request_id = $1`, r.CallRequestID, tt.was, tt.ended); err != nil {
				t.Fatal(err)
			}
		}
		within(t, pool, func(tx pgx.Tx) error {
			found, err := st.EnqueueOverdue(t.Context(), tx, r, told)
			if err == nil && found != tt.want {
				t.Errorf("%s: found %s, want %s", tt.name, found, tt.want)
			}
			return err
		})
		if count(t, pool, `SELECT count(*) FROM dial_queue WHERE call_request_id = $1 AND state = $2`, r.CallRequestID, tt.is) != 1 {
			t.Errorf("%s: it is not %s", tt.name, tt.is)
		}
	}
}
