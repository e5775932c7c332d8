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
				if after, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || after < 1 || after > 2 {
					t.Errorf("Retry-After = %q, want 1 or 2", got.header.Get("Retry-After"))
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

func TestPublic_AddressWithoutAKeyIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	from := func(address string) answered {
		return send(t, "GET", r.public.URL+"/v1/calls", "", "", http.Header{"X-Forwarded-For": {"198.51.100.1, " + address}})
	}
	begun := time.Now()
	var refused atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if from("203.0.113.7").status == http.StatusTooManyRequests {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	mustRefuseBeyond600(t, refused.Load(), time.Since(begun))
	if got := from("203.0.113.8"); got.status != http.StatusUnauthorized {
		t.Errorf("another address = %d, want 401", got.status)
	}
	key, _ := r.key(r.workspace(""), "read")
	got := send(t, "GET", r.public.URL+"/v1/calls", key, "", http.Header{"X-Forwarded-For": {"203.0.113.7"}})
	if got.status != http.StatusOK {
		t.Errorf("a good key from a refused address = %d, want 200", got.status)
	}
}

// mustRefuseBeyond600 holds what was refused of 800 against the 600 of a minute, ten a second of which came back meanwhile.
func mustRefuseBeyond600(t *testing.T, refused int32, took time.Duration) {
	t.Helper()
	back := int32(took/(100*time.Millisecond)) + 1
	if refused < 200-back || refused > 200 {
		t.Errorf("%d of 800 were refused within %s, want 200, less at most %d that came back", refused, took, back)
	}
}

// TestAdmin_GuessesAreCounted: operator tokens cannot be guessed faster than API keys, and the guesses of
// one address do not lock out an operator at another address.
func TestAdmin_GuessesAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun := time.Now()
	var refused atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				switch got := send(t, "GET", r.admin.URL+"/admin/v1/workspaces", "a-token-of-ada-0002", "", nil); {
				case got.status == http.StatusTooManyRequests && got.code() == "rate_limited" && got.header.Get("Retry-After") != "":
					refused.Add(1)
				case got.status != http.StatusUnauthorized:
					t.Errorf("a guess = %d %s", got.status, got.body)
				}
			}
		})
	}
	all.Wait()
	mustRefuseBeyond600(t, refused.Load(), time.Since(begun))
	elsewhere := http.Header{"X-Forwarded-For": {"203.0.113.9"}}
	if got := send(t, "GET", r.admin.URL+"/admin/v1/workspaces", operatorToken, "", elsewhere); got.status != http.StatusOK {
		t.Errorf("an operator at another address = %d %s, want 200", got.status, got.body)
	}
}
