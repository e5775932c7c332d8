package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestPublic_RateIsExactOverTwoReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const limit = 30 // one more every 2 s
	key, _ := r.key(r.workspace(`"rate_limit_per_minute":30`), "read")
	second, _ := r.replica(nil)
	begun := time.Now()
	var passed, refused atomic.Int32
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			address := r.public.URL
			if i%2 == 1 {
				address = second.URL
			}
			got := send(t, "GET", address+"/v1/calls", key, "", nil)
			switch got.status {
			case http.StatusOK:
				passed.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
				if after := got.header.Get("Retry-After"); after != "1" && after != "2" { // a turn comes back after 2 s
					t.Errorf("Retry-After = %q, want 1 or 2", after)
				}
				if after, reset := got.header.Get("Retry-After"), got.header.Get("X-RateLimit-Reset"); reset != after {
					t.Errorf("X-RateLimit-Reset = %q, want Retry-After's %q", reset, after)
				}
				if got.header.Get("X-RateLimit-Remaining") != "0" {
					t.Errorf("Remaining = %q beside a 429", got.header.Get("X-RateLimit-Remaining"))
				}
			default:
				t.Errorf("GET = %d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	refilled := int32(time.Since(begun)/(time.Minute/limit)) + 1
	if n := passed.Load(); n < limit || n > limit+refilled {
		t.Errorf("%d passed, want %d (and at most %d that came back meanwhile)", n, limit, refilled)
	}
}

func TestPublic_RateFollowsThePlan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for plan, want := range map[string]string{"growth": "120", "scale": "600"} {
		key, _ := r.key(r.workspace(`"plan":"`+plan+`"`), "read")
		got := r.customer("GET", "/v1/calls", key, "")
		if got.header.Get("X-RateLimit-Limit") != want || got.header.Get("RateLimit-Policy") != `"default";q=`+want+`;w=60` {
			t.Errorf("%s: %v", plan, got.header)
		}
		left, _ := strconv.Atoi(want)
		if got.header.Get("X-RateLimit-Remaining") != strconv.Itoa(left-1) || !strings.HasPrefix(got.header.Get("RateLimit"), `"default";r=`+strconv.Itoa(left-1)+`;t=`) {
			t.Errorf("%s: %v", plan, got.header)
		}
	}
}

// useUp uses up the limit of one counter for the next hour, however long the test takes.
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

// wantLimited checks that a response is a 429 that says when to try again.
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

func TestPublic_AddressWithoutAKeyIsCounted(t *testing.T) {
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

// TestAdmin_GuessesAreCounted: TestOperator_GuessAboveTheLimitIsNotCompared covers the limit.
func TestAdmin_GuessesAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	from := func(address, token string) answered {
		return send(t, "GET", r.admin.URL+"/admin/v1/workspaces", token, "", http.Header{"X-Forwarded-For": {address}})
	}
	if got := from("203.0.113.7", "a-token-of-ada-0002"); got.status != http.StatusUnauthorized {
		t.Errorf("a wrong token = %d, want 401", got.status)
	}
	r.useUp("stranger 203.0.113.7")
	wantLimited(t, "a wrong token above the limit", from("203.0.113.7", "a-token-of-ada-0002"))
	wantLimited(t, "the correct token above the limit", from("203.0.113.7", operatorToken))
	if got := from("203.0.113.9", operatorToken); got.status != http.StatusOK {
		t.Errorf("the correct token from another address = %d, want 200", got.status)
	}
}
