package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func end(t *testing.T, st *store.Store, id uuid.UUID) {
	t.Helper()
	err := st.Change(t.Context(), []uuid.UUID{id}, func(calls map[uuid.UUID]*callstate.Call) {
		calls[id].Initiate(time.Now())
		calls[id].End(callstate.End{At: time.Now(), Cause: callstate.UserBusy})
	})
	if err != nil {
		t.Error(err)
	}
}

func TestClaim_CapacityIsFreeAfterEveryEndOfAClaimOrCall(t *testing.T) {
	t.Parallel()
	fence := func(t *testing.T, st *store.Store, r dialqueue.Request) uuid.UUID {
		id := uuid.Must(uuid.NewV7())
		if err := st.Fence(t.Context(), r, id, dialqueue.DefaultFrom, "sim"); err != nil {
			t.Fatal(err)
		}
		return id
	}
	no := dialqueue.Refusal{Code: dialqueue.CodeOutsideHours, Detail: "No."}
	tests := []struct {
		name string
		end  func(*testing.T, *pgxpool.Pool, *store.Store, dialqueue.Request) error
	}{
		{name: "a claimed request is withdrawn",
			end: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, r dialqueue.Request) error {
				_, err := st.WithdrawNow(t.Context(), r.CallRequestID, r.WorkspaceID)
				return err
			}},
		{name: "a claimed request is put back",
			end: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, r dialqueue.Request) error {
				return st.PutBack(t.Context(), r, time.Hour, 0)
			}},
		{name: "a claimed request is rescheduled",
			end: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, r dialqueue.Request) error {
				return st.Reschedule(t.Context(), r, time.Now().Add(time.Hour))
			}},
		{name: "a claimed request is blocked",
			end: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, r dialqueue.Request) error {
				return st.Block(t.Context(), r, no)
			}},
		{name: "the claim expires",
			end: func(t *testing.T, pool *pgxpool.Pool, _ *store.Store, _ dialqueue.Request) error {
				_, err := pool.Exec(t.Context(), "UPDATE dial_queue SET look_at = now() - interval '1 second'")
				return err
			}},
		{name: "the request expires after its claim",
			end: func(t *testing.T, pool *pgxpool.Pool, st *store.Store, _ dialqueue.Request) error {
				_, err := pool.Exec(t.Context(),
					"UPDATE dial_queue SET look_at = now() - interval '1 second', due_at = now() - interval '2 days'")
				if err == nil {
					_, err = st.Expire(t.Context())
				}
				return err
			}},
		{name: "the fenced call becomes void",
			end: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, r dialqueue.Request) error {
				return st.Void(t.Context(), r, fence(t, st, r), dialqueue.Blocked, no)
			}},
		{name: "the call ends", end: func(t *testing.T, _ *pgxpool.Pool, st *store.Store, r dialqueue.Request) error {
			end(t, st, fence(t, st, r))
			return nil
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st := newStore(pool)
			enqueue(t, pool, st, aRequest(uuid.Must(uuid.NewV7()), 1))
			taken := claimRequests(t, st, 1)
			if len(taken) != 1 {
				t.Fatalf("length of taken = %d, want 1", len(taken))
			}
			if got := inUse(t, pool); got != 1 {
				t.Fatalf("requests in use = %d, want 1", got)
			}
			if err := tt.end(t, pool, st, taken[0]); err != nil {
				t.Fatal(err)
			}
			if got := inUse(t, pool); got != 0 {
				t.Errorf("requests in use after the end = %d, want 0", got)
			}
		})
	}
}

func TestClaim_ExpiredClaimOfADeadProcessFreesCapacity(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, workspace := newStore(pool), uuid.Must(uuid.NewV7())
	limited(t, pool, st, workspace, 1, 100_000)
	enqueue(t, pool, st, aRequest(workspace, 1), aRequest(workspace, 2))
	dead := store.New(pool, uuid.Must(uuid.NewV7()), store.Timing{ClaimLease: 100 * time.Millisecond,
		QueueLimit: time.Hour})
	if got := claimRequests(t, dead, 1); len(got) != 1 {
		t.Fatalf("claimed requests = %d", len(got))
	}
	testkit.Until(t, "another process claims", func() bool { return len(claimRequests(t, st, 1)) == 1 })
	if n := inUse(t, pool); n != 1 {
		t.Errorf("requests in use = %d, want 1", n)
	}
}

// expireOldRequest runs Expire on a request that has been due for 25 h, and returns the request's
// error code. The code is empty if the request did not end.
func expireOldRequest(t *testing.T, limit store.Timing, workspaceFull, noTrunk bool) (code string) {
	t.Helper()
	pool := newPool(t)
	limit.ClaimLease = time.Minute
	st, workspace := store.New(pool, uuid.Must(uuid.NewV7()), limit), uuid.Must(uuid.NewV7())
	limited(t, pool, st, workspace, 1, 100_000)
	if workspaceFull {
		fenced(t, pool, st, aRequest(workspace, 1)) // this call uses up the workspace's limit of one
	}
	old, young := aRequest(workspace, 2), aRequest(workspace, 3)
	old.DueAt = time.Now().Add(-25 * time.Hour)
	young.DueAt = time.Now().Add(-time.Minute)
	enqueue(t, pool, st, old, young)
	if workspaceFull && len(claimRequests(t, st, 5)) != 0 {
		t.Fatal("Claim took a request beyond the limit of live calls")
	}
	if noTrunk {
		claimWithoutTrunk(t, st, 0)
	}
	for range 2 { // the second run must change nothing
		if _, err := st.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := countRows(t, pool, "SELECT count(*) FROM dial_queue WHERE state = 'failed'"); n > 1 {
		t.Errorf("requests ended = %d", n)
	}
	facts := func(code string) int {
		return countRows(t, pool, "SELECT count(*) FROM outbox WHERE key = $1 AND position($2::bytea in payload) > 0",
			[]byte(old.CallRequestID.String()), []byte(code))
	}
	for _, code := range []string{dialqueue.CodeQueueExpired, dialqueue.CodeCapacityTimeout} {
		if facts(code) == 1 {
			return code
		}
	}
	return ""
}

func TestExpire_RequestsPastTheirLimitsEndAsFailed(t *testing.T) {
	t.Parallel()
	day, never := 24*time.Hour, 1000*time.Hour
	tests := []struct {
		name            string
		queue, capacity time.Duration
		crowded         bool
		trunkDown       bool
		want            string
	}{
		{name: "older than QueueLimit, and a claim found no capacity",
			queue: day, capacity: day, crowded: true, want: dialqueue.CodeCapacityTimeout},
		{name: "older than QueueLimit, and no claim ran", queue: day, capacity: day, want: dialqueue.CodeQueueExpired},
		{name: "waited for capacity longer than CapacityLimit",
			queue: never, capacity: day, crowded: true, want: dialqueue.CodeCapacityTimeout},
		{name: "due longer than CapacityLimit, and no claim ran", queue: never, capacity: day, want: ""},
		{name: "younger than both limits, and a claim found no capacity",
			queue: never, capacity: never, crowded: true, want: ""},
		{name: "older than QueueLimit, and no trunk could take a call",
			queue: day, capacity: day, trunkDown: true, want: dialqueue.CodeQueueExpired},
		{name: "due longer than CapacityLimit, and no trunk could take a call",
			queue: never, capacity: day, trunkDown: true, want: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limit := store.Timing{QueueLimit: tt.queue, CapacityLimit: tt.capacity}
			if got := expireOldRequest(t, limit, tt.crowded, tt.trunkDown); got != tt.want {
				t.Errorf("error code = %q, want %q", got, tt.want)
			}
		})
	}
}
