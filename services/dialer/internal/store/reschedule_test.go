package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/proto/eventv1"
)

// If the clock of contacts-compliance is slow, the next calling window can already have begun by
// the clock of this database server.
func TestReschedule_DueTimeIsAtLeastOneSecondInTheFuture(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		ahead time.Duration
		least time.Duration
		most  time.Duration
	}{
		{name: "window in the past", ahead: -time.Hour, least: time.Second, most: time.Second},
		{name: "window in 100 ms", ahead: 100 * time.Millisecond, least: time.Second, most: time.Second},
		{name: "window in an hour", ahead: time.Hour, least: 59 * time.Minute, most: time.Hour},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
			enqueue(t, pool, st, r)
			claimed := claimRequests(t, st, 1)
			if got := len(claimed); got != 1 {
				t.Fatalf("claimed requests = %d, want 1", got)
			}
			var now time.Time
			if err := pool.QueryRow(t.Context(), "SELECT now()").Scan(&now); err != nil {
				t.Fatal(err)
			}
			if err := st.Reschedule(t.Context(), claimed[0], now.Add(test.ahead)); err != nil {
				t.Fatalf("Reschedule: %v", err)
			}
			event := onlyDialEvent(t, pool, r.CallRequestID)
			var due time.Time
			const readDue = "SELECT due_at FROM dial_queue WHERE call_request_id = $1 AND look_at = due_at"
			if err := pool.QueryRow(t.Context(), readDue, r.CallRequestID).Scan(&due); err != nil {
				t.Fatalf("read the request: %v", err)
			}
			ahead := due.Sub(event.GetOccurredAt().AsTime().Truncate(time.Microsecond))
			if ahead < test.least {
				t.Errorf("new due time is %v ahead, want at least %v", ahead, test.least)
			}
			if ahead > test.most {
				t.Errorf("new due time is %v ahead, want at most %v", ahead, test.most)
			}
			if got := event.GetRescheduled().GetScheduledFor().AsTime(); !got.Equal(due) {
				t.Errorf("scheduled_for of the event = %v, want %v", got, due)
			}
		})
	}
}

func onlyDialEvent(t *testing.T, pool *pgxpool.Pool, request uuid.UUID) *eventv1.DialEvent {
	t.Helper()
	const query = "SELECT payload FROM outbox WHERE topic = 'dial-events.v1' AND key = $1"
	rows, err := pool.Query(t.Context(), query, []byte(request.String()))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	event := &eventv1.DialEvent{}
	if err := proto.Unmarshal(payload, event); err != nil {
		t.Fatal(err)
	}
	return event
}
