package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// HeldBack must be true only if the workspace's own limits made the request late. If the request
// was late before the workspace reached its limits, the service caused the delay.
func TestClaim_RequestDelayedByOwnLimitsIsMarked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		since, seen string
		due         time.Duration
		want        bool
	}{
		{
			name: "the workspace reached its limits before the request was late", since: "-10 minutes", seen: "1 hour",
			due: 9 * time.Minute, want: true,
		},
		{
			name: "the request was late before the workspace reached its limits", since: "-1 minute", seen: "1 hour",
			due: 10 * time.Minute, want: false,
		},
		{
			name: "the workspace is below its limits again", since: "-1 hour", seen: "-1 minute",
			due: 50 * time.Minute, want: false,
		},
		{name: "the workspace never reached its limits", since: "", seen: "", due: 10 * time.Minute, want: false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
			late := aRequest(workspace, 1)
			late.DueAt = time.Now().Add(-tt.due)
			enqueue(t, pool, newStore(pool), late)
			if tt.since != "" {
				const known = `INSERT INTO rate_buckets (scope, version, tokens, own_limit_since, own_limit_seen)
					VALUES ($1::uuid::text, 1, 5, now() + $2::interval, now() + $3::interval)`
				if _, err := pool.Exec(t.Context(), known, workspace, tt.since, tt.seen); err != nil {
					t.Fatal(err)
				}
			}
			if taken := claimRequests(t, newStore(pool), 1); len(taken) != 1 {
				t.Errorf("claim: length of taken = %d, want 1", len(taken))
			} else if taken[0].HeldBack != tt.want {
				t.Errorf("claim: taken[0].HeldBack = %v, want %v", taken[0].HeldBack, tt.want)
			}
		})
	}
}

func TestClaim_StoresTheTimeAtWhichAWorkspaceReachedItsLimits(t *testing.T) {
	t.Parallel()
	const is = ` FROM rate_buckets WHERE scope = $1::uuid::text AND own_limit_seen > now() - interval '1 hour' AND `
	for _, tt := range []struct {
		name string
		live int32
		// before contains SQL expressions for the stored own_limit_since and own_limit_seen. It is empty
		// if neither is stored.
		before string
		trunk  int
		noted  string // empty if nothing must be stored
	}{
		{
			name: "the workspace reaches its own limit of live calls", live: 1, before: "", trunk: 100,
			noted: "own_limit_since > now() - interval '1 hour'",
		},
		{name: "only the limit of the trunk is reached", live: 100, before: "", trunk: 1, noted: ""},
		{name: "the workspace is still at its own limit",
			live: 1, before: "now() - interval '2 hours', now() + interval '1 hour'",
			trunk: 100,
			noted: "own_limit_since < now() - interval '1 hour'"},
		{name: "the workspace reaches its own limit again", live: 1,
			before: "now() - interval '2 hours', now() - interval '90 minutes'", trunk: 100,
			noted: "own_limit_since > now() - interval '1 hour'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
			st := newStore(pool)
			limited(t, pool, st, workspace, tt.live, 100_000)
			enqueue(t, pool, st, aRequest(workspace, 1), aRequest(workspace, 2), aRequest(workspace, 3))
			if tt.before != "" {
				_, err := pool.Exec(t.Context(), `INSERT INTO rate_buckets (scope, version, tokens, own_limit_since, own_limit_seen)
					VALUES ($1::uuid::text, 1, 5, `+tt.before+`)`, workspace)
				if err != nil {
					t.Fatal(err)
				}
			}
			over := ampleCapacity(64)
			over.OfTrunk = dialqueue.Limit{Live: tt.trunk, PerSecond: 100_000}
			if _, err := claimOnce(t.Context(), st, over); err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.noted == "" && countRows(t, pool, `SELECT count(*) FROM rate_buckets WHERE own_limit_seen IS NOT NULL`) != 0:
				t.Error("own limits were stored, although a shared limit was reached")
			case tt.noted != "" && countRows(t, pool, `SELECT count(*)`+is+tt.noted, workspace) != 1:
				t.Errorf("the bucket does not satisfy %s", tt.noted)
			}
		})
	}
}

func TestClaim_ReturnsUnusedTokens(t *testing.T) {
	t.Parallel()
	slow := dialqueue.Limit{Live: 100_000, PerSecond: 1}
	ample := dialqueue.Limit{Live: 100_000, PerSecond: 100_000}
	for _, tt := range []struct {
		name           string
		workspace      int32
		ofTrunk, total dialqueue.Limit
	}{
		{name: "token of the workspace", workspace: 1, ofTrunk: ample, total: ample},
		{name: "token of the trunk", workspace: 100_000, ofTrunk: slow, total: ample},
		{name: "token of all calls", workspace: 100_000, ofTrunk: ample, total: slow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
			st := newStore(pool)
			limited(t, pool, st, workspace, 100_000, tt.workspace)
			enqueue(t, pool, st, aRequest(workspace, 1), aRequest(workspace, 2), aRequest(workspace, 3))
			c := store.Capacity{Workers: dialqueue.Workers{Free: 5}, Trunk: "sim", OfTrunk: tt.ofTrunk, Total: tt.total}
			claimed := func(unused int) int {
				// refilled_at is in the future, so that the bucket gains no token while the test runs.
				if _, err := pool.Exec(t.Context(), "UPDATE rate_buckets SET refilled_at = now() + interval '1 hour'"); err != nil {
					t.Fatal(err)
				}
				c.Unused = map[uuid.UUID]int{workspace: unused}
				return len(claimAs(t, st, c).Requests)
			}
			if got := claimed(0); got != 1 {
				t.Fatalf("claimed requests = %d, want 1", got)
			}
			if got := claimed(0); got != 0 {
				t.Errorf("claimed requests without a token = %d, want 0", got)
			}
			if got := claimed(1); got != 1 {
				t.Errorf("claimed requests after a token was returned = %d, want 1", got)
			}
			ample := c.Workers
			c.Workers = dialqueue.Workers{}
			if got := claimed(1); got != 0 {
				t.Errorf("claimed requests without a worker = %d, want 0", got)
			}
			c.Workers = ample
			if got := claimed(0); got != 1 {
				t.Errorf("claimed requests after a claim without a request returned the token = %d, want 1", got)
			}
		})
	}
}

// Claims read a workspace's requests from its scan position onwards. No claim finds a request
// before that position.
func TestReturnStrays_RequestsBeforeTheScanPositionMoveToTheFront(t *testing.T) {
	t.Parallel()
	pool, workspace := newPool(t), uuid.Must(uuid.NewV7())
	st := newStore(pool)
	enqueue(t, pool, st, aRequest(workspace, 1))
	claimRequests(t, st, 1)
	for _, sql := range []string{
		`UPDATE rate_buckets SET version = version + 1, scan_from = now() - interval '1 minute',
			next_scan_from = now() - interval '30 seconds'`,
		"UPDATE dial_queue SET claimed_by = NULL, look_at = now() - interval '1 hour'",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if got := claimRequests(t, st, 1); len(got) != 0 {
		t.Fatalf("claimed requests before the scan = %d, want 0", len(got))
	}
	for _, want := range []int64{1, 0} {
		if moved, err := st.ReturnStrays(t.Context()); err != nil || moved != want {
			t.Errorf("ReturnStrays = %d, %v, want %d", moved, err, want)
		}
	}
	if got := claimRequests(t, st, 1); len(got) != 1 {
		t.Errorf("claimed requests after they were returned = %d, want 1", len(got))
	}
}
