package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/store"
)

func TestPublic_RateLimitIsExactOverTwoReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const limit = 30 // after this limit is used up, one request every 2 s is allowed
	key, _ := r.key(r.workspace(`"rate_limit_per_minute":30`), "read")
	r.stopClock()
	first, _ := r.replica(nil)
	second, _ := r.replica(nil)
	var allowed, refused atomic.Int32
	var all sync.WaitGroup
	clients := make(chan struct{}, 16) // 16 concurrent clients, because the database pool has only 10 connections
	for i := range 200 {
		address := []string{first.URL, second.URL}[i%2]
		all.Go(func() {
			clients <- struct{}{}
			defer func() { <-clients }()
			got := send(t, "GET", address+"/v1/calls", key, "", nil)
			if got.status == http.StatusOK {
				allowed.Add(1)
				return
			}
			refused.Add(1)
			wantLimited(t, "above the limit", got)
			// A refusal from memory uses the clock of the process, which is not stopped. So its
			// Retry-After can be 1 or 2.
			after := got.header.Get("Retry-After")
			if after != "1" && after != "2" {
				t.Errorf("Retry-After = %q, want 1 or 2", after)
			}
			if reset := got.header.Get("X-RateLimit-Reset"); reset != after {
				t.Errorf("X-RateLimit-Reset = %q, want the Retry-After %q", reset, after)
			}
			if left := got.header.Get("X-RateLimit-Remaining"); left != "0" {
				t.Errorf("X-RateLimit-Remaining = %q, want 0", left)
			}
		})
	}
	all.Wait()
	if got := allowed.Load(); got != limit {
		t.Errorf("requests that were allowed = %d, want %d", got, limit)
	}
	if got := refused.Load(); got != 200-limit {
		t.Errorf("requests that were refused = %d, want %d", got, 200-limit)
	}
}

// stopClock makes the database return a constant time, so that no rate limit recovers during the
// test. It applies only to replicas that the test starts later.
func (r *rig) stopClock() {
	r.t.Helper()
	_, err := pgtest.Owner(r.t, r.pool, store.Schema).Exec(r.t.Context(), `CREATE FUNCTION clock_timestamp()
		RETURNS timestamptz LANGUAGE sql IMMUTABLE RETURN timestamptz '2026-11-20 12:00:00+00'`)
	if err != nil {
		r.t.Fatal(err)
	}
	settings := r.pool.Config()
	settings.ConnConfig.RuntimeParams["search_path"] = store.Schema +
		", pg_catalog" // Postgres finds the test's function before the built-in clock_timestamp
	stopped, err := pgxpool.NewWithConfig(r.t.Context(), settings)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(stopped.Close)
	r.store = store.New(stopped, nil)
}

func TestPublic_RateLimitDependsOnThePlan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for plan, want := range map[string]string{"growth": "120", "scale": "600"} {
		key, _ := r.key(r.workspace(`"plan":"`+plan+`"`), "read")
		got := r.customer("GET", "/v1/calls", key, "")
		if got.header.Get("X-RateLimit-Limit") != want {
			t.Errorf(`%s: got.header.Get("X-RateLimit-Limit") = %v, want %v`, plan, got.header.Get("X-RateLimit-Limit"), want)
		} else if got.header.Get("RateLimit-Policy") != `"default";q=`+want+`;w=60` {
			t.Errorf(`%s: got.header.Get("RateLimit-Policy") = %q, want %q`,
				plan, got.header.Get("RateLimit-Policy"), `"default";q=`+want+`;w=60`)
		}
		left, _ := strconv.Atoi(want)
		if got.header.Get("X-RateLimit-Remaining") != strconv.Itoa(left-1) {
			t.Errorf(`%s: got.header.Get("X-RateLimit-Remaining") = %v, want %v`,
				plan, got.header.Get("X-RateLimit-Remaining"), strconv.Itoa(left-1))
		} else if !strings.HasPrefix(got.header.Get("RateLimit"), `"default";r=`+strconv.Itoa(left-1)+`;t=`) {
			t.Errorf(`%s: got.header.Get("RateLimit") = %q, want it to begin with %q`,
				plan, got.header.Get("RateLimit"), `"default";r=`+strconv.Itoa(left-1)+`;t=`)
		}
	}
}

// useUp uses up the limit of one counter for the next hour. So the result does not depend on the
// duration of the test.
func (r *rig) useUp(key string) {
	r.t.Helper()
	tag, err := r.pool.Exec(r.t.Context(),
		`UPDATE rate_limits SET tat = clock_timestamp() + interval '1 hour' WHERE key = $1`, key)
	if err != nil {
		r.t.Fatal(err)
	}
	if tag.RowsAffected() != 1 {
		r.t.Fatalf("counters named %q = %d, want 1", key, tag.RowsAffected())
	}
}

func wantLimited(t *testing.T, what string, got answered) {
	t.Helper()
	if got.status != http.StatusTooManyRequests {
		t.Errorf("%s: status = %d, want 429", what, got.status)
	}
	if got.code() != "rate_limited" {
		t.Errorf("%s: code = %q, want rate_limited", what, got.code())
	}
	if got.header.Get("Retry-After") == "" {
		t.Errorf("%s: Retry-After is empty", what)
	}
}

func TestPublic_RequestsWithoutAKeyAreCountedByAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	from := func(address, key string) answered {
		return send(t, "GET", r.public.URL+"/v1/calls", key, "", http.Header{"X-Forwarded-For": {"198.51.100.1, " + address}})
	}
	first := from("203.0.113.7", "")
	if first.status != http.StatusUnauthorized {
		t.Errorf("the first request without a key = %d, want 401", first.status)
	}
	if got := first.header.Get("X-RateLimit-Remaining"); got != "599" {
		t.Errorf("X-RateLimit-Remaining after the first = %q, want 599", got)
	}
	r.useUp("address 203.0.113.7")
	wantLimited(t, "above the limit of the address", from("203.0.113.7", ""))
	if got := from("203.0.113.8", ""); got.status != http.StatusUnauthorized {
		t.Errorf("another address = %d, want 401", got.status)
	}
	key, _ := r.key(r.workspace(""), "read")
	if got := from("203.0.113.7", key); got.status != http.StatusOK {
		t.Errorf("a good key from the same address = %d, want 200", got.status)
	}
}

func TestAdmin_WrongTokensAreCountedByAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	from := func(address, token string) answered {
		return send(t, "GET", r.admin.URL+"/admin/v1/workspaces", token, "", http.Header{"X-Forwarded-For": {address}})
	}
	if got := from("203.0.113.7", "a-token-of-ada-0002"); got.status != http.StatusUnauthorized {
		t.Errorf("a wrong token = %d, want 401", got.status)
	}
	r.useUp("wrong token 203.0.113.7")
	wantLimited(t, "a wrong token above the limit", from("203.0.113.7", "a-token-of-ada-0002"))
	wantLimited(t, "the correct token above the limit", from("203.0.113.7", operatorToken))
	if got := from("203.0.113.9", operatorToken); got.status != http.StatusOK {
		t.Errorf("the correct token from another address = %d, want 200", got.status)
	}
}
