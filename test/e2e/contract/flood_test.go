package contract

import (
	"context"
	"encoding/base32"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// forwardedHeader is the header with the client address. The gateway accepts it from this machine,
// which is a trusted proxy of the stack.
const forwardedHeader = "X-Forwarded-For"

// keylessClients returns functions that create a client without a valid key. The number n makes
// each client different.
func keylessClients(t *testing.T) map[string]func(n int64) *client {
	t.Helper()
	shared := customer(t, "")
	as := func(key string) *client { return &client{base: shared.base, key: key, http: shared.http} }
	return map[string]func(n int64) *client{
		"no key":          func(int64) *client { return shared },
		"a malformed key": func(n int64) *client { return as(fmt.Sprint("rf_live_", n)) },
		"an invented key": func(n int64) *client {
			secret := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(fmt.Appendf(nil, "%032d", n))
			return as("rf_live_00000000_" + strings.ToLower(secret))
		},
	}
}

// TestFlood_OneAddressMaySend600RequestsPerMinute sends 800 requests without a valid key from one
// address to both replicas. Then it checks that other clients are not affected.
func TestFlood_OneAddressMaySend600RequestsPerMinute(t *testing.T) {
	w := workspace(t)
	ways := keylessClients(t)
	for i, name := range []string{"no key", "a malformed key", "an invented key"} {
		address := fmt.Sprintf("203.0.113.%d", 10+i)
		const asked, limit = 800, 600
		begun := time.Now()
		var n atomic.Int64
		lanes := runParallel(make([]*client, 32), func(int, *client) []answer {
			var got []answer
			for range asked / 32 {
				c := ways[name](n.Add(1))
				got = append(got, c.send(t, "GET", "/v1/calls", nil, forwardedHeader, address))
			}
			return got
		})
		refilled := int(time.Since(begun) / (time.Minute / limit))
		passed := 0
		for _, a := range slices.Concat(lanes...) {
			limitsOf(t, name, a)
			switch {
			case a.status == http.StatusUnauthorized && a.code() == "invalid_api_key":
				passed++
			case a.status != http.StatusTooManyRequests:
				t.Errorf("%s: %d %s, want 401 or 429", name, a.status, a.body)
			}
		}
		if passed < limit {
			t.Errorf("%s: passed = %v, want at least %v; asked = %d", name, passed, limit, asked)
		} else if passed > limit+refilled {
			t.Errorf("%s: passed = %v, want at most %v; asked = %d", name, passed, limit+refilled, asked)
		}
		anonymous := ways["no key"](0)
		for _, open := range []string{"/readyz", "/openapi.json", "/docs"} {
			if got := anonymous.send(t, "GET", open, nil, forwardedHeader, address); got.status == 429 {
				t.Errorf("%s from a refused address: got.status = 429, want another value", open)
			} else if got.status == 401 {
				t.Errorf("%s from a refused address: got.status = 401, want another value", open)
			}
		}
		w.read.want(t, 200, "GET", "/v1/wallet", nil, forwardedHeader, address)
		anonymous.refused(t, 401, "invalid_api_key", "GET", "/v1/wallet", nil, forwardedHeader,
			fmt.Sprintf("203.0.113.%d", 20+i))
	}
}

// TestFlood_OpenPathsAreNotCounted sends requests without a key to paths without authentication.
// Their number is higher than the limit of an address.
func TestFlood_OpenPathsAreNotCounted(t *testing.T) {
	const address = "203.0.113.30"
	var asked atomic.Int64
	runParallel(newClients(t, "", 16), func(_ int, c *client) bool {
		for n := asked.Add(1); n < 660; n = asked.Add(1) {
			path := []string{"/readyz", "/openapi.json", "/docs"}[n%3]
			if got := c.send(t, "GET", path, nil, forwardedHeader, address); got.status == 429 {
				t.Errorf("GET %s: got.status = 429, want another value", path)
				return false
			} else if got.status == 401 {
				t.Errorf("GET %s: got.status = 401, want another value", path)
				return false
			}
		}
		return true
	})
	got := customer(t, "").send(t, "GET", "/v1/calls", nil, forwardedHeader, address)
	if rateLimits := limitsOf(t, "the first request that counts", got); got.status != 401 {
		t.Errorf("after the open paths: got.status = %v, want 401", got.status)
	} else if rateLimits.remaining != 599 {
		t.Errorf("after the open paths: remaining requests = %v, want 599", rateLimits.remaining)
	}
}

// TestFlood_ValidKeysOfTheSameAddressPass sends invalid and valid keys from the same address. The
// gateway replica has already cached the first valid key. The second valid key is used for the
// first time.
func TestFlood_ValidKeysOfTheSameAddressPass(t *testing.T) {
	const address = "203.0.113.40"
	w := workspace(t)
	// The client w.read keeps this connection, so its later requests reach the same replica. That
	// replica has then cached the key.
	w.read.want(t, 200, "GET", "/v1/wallet", nil, forwardedHeader, address)
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	var sent atomic.Int64
	invented := keylessClients(t)["an invented key"]
	for range 16 {
		flood.Go(func() {
			for ctx.Err() == nil {
				got := invented(1_000_000+sent.Add(1)).send(t, "GET", "/v1/calls", nil, forwardedHeader, address)
				if got.status != 401 && got.status != 429 {
					t.Errorf("a request with an unknown key = %d %s", got.status, got.body)
					return
				}
			}
		})
	}
	until(t, "the flood is refused", func() bool { return sent.Load() > 700 })
	fresh, _ := w.key(t, "read")
	fresh.want(t, 200, "GET", "/v1/wallet", nil, forwardedHeader, address)
	for range 60 {
		w.read.want(t, 200, "GET", "/v1/wallet", nil, forwardedHeader, address)
	}
}

// X-RateLimit-Remaining shows the count of the address to which a request is attributed.
func TestFlood_CountsTheClientAddress(t *testing.T) {
	anonymous := customer(t, "")
	left := func(c *client, headers ...string) int {
		t.Helper()
		var lines []string
		for _, value := range headers {
			lines = append(lines, forwardedHeader, value)
		}
		refusal := c.refused(t, 401, "invalid_api_key", "GET", "/v1/calls", nil, lines...)
		return limitsOf(t, "a request with an unknown key", refusal).remaining
	}
	const untouched = 599
	// sendAndLook sends 90 requests from the address and then calls look immediately. Every 100 ms,
	// one of the 90 requests stops counting. After 9 s, no request would count.
	sendAndLook := func(c *client, from string, look func() int) int {
		t.Helper()
		runParallel(make([]*client, 90), func(int, *client) int { return left(c, from) })
		return look()
	}
	for i, row := range []struct {
		name    string
		headers []string
		counted bool
	}{
		{"the address that the proxy added", []string{"203.0.113.50"}, true},
		{"the last address, after one that the client wrote", []string{"198.51.100.7, 203.0.113.50"}, true},
		{"the last address of the last header line", []string{"198.51.100.8", "203.0.113.50"}, true},
		{"through the proxy twice", []string{"203.0.113.50, 127.0.0.1"}, true},
		{"spaces around the address", []string{"  203.0.113.50  "}, true},
		{"an IPv4-mapped IPv6 address", []string{"::ffff:203.0.113.50"}, true},
		{"the first address is ignored", []string{"203.0.113.50, 198.51.100.99"}, false},
		{"another address", []string{"203.0.113.51"}, false},
	} {
		own := fmt.Sprintf("203.0.113.%d", 100+i)
		for n, header := range row.headers {
			row.headers[n] = strings.ReplaceAll(header, "203.0.113.50", own)
		}
		got := sendAndLook(anonymous, own, func() int { return left(anonymous, row.headers...) })
		if (got < untouched) != row.counted {
			t.Errorf("%s: %d are left to it after requests of %s", row.name, got, own)
		}
	}
	got := sendAndLook(anonymous, "2001:db8:0:1::1", func() int { return left(anonymous, "2001:db8:0:1:ffff::2") })
	if got >= untouched {
		t.Errorf("another address of the same IPv6 network has %d left, want the network counted as one", got)
	}
	elsewhere := &client{
		base: anonymous.base,
		http: &http.Client{Transport: wire(t, transport("127.0.0.77")), Timeout: 30 * time.Second},
	}
	probe, err := http.NewRequestWithContext(t.Context(), "GET", anonymous.base+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := elsewhere.http.Do(probe); err != nil {
		t.Skipf("this machine has one loopback address alone: %v", err)
	} else {
		response.Body.Close()
	}
	if got := sendAndLook(elsewhere, "203.0.113.60",
		func() int { return left(elsewhere, "203.0.113.61") }); got >= untouched {
		t.Errorf("a peer that is no proxy has %d left: it chose its address by X-Forwarded-For", got)
	}
	for _, name := range []string{"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip"} {
		look := func() int {
			return limitsOf(t, name, elsewhere.send(t, "GET", "/v1/calls", nil, name, "203.0.113.62")).remaining
		}
		if sendAndLook(elsewhere, "203.0.113.60", look) >= untouched {
			t.Errorf("%s chose whom the request was counted for", name)
		}
	}
}
