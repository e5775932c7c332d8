package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/gateway/internal/ratelimit"
	"ringfence.dev/services/gateway/internal/secrets"
)

func keyHash(n int) (hash secrets.Hash) {
	binary.BigEndian.PutUint64(hash[:], uint64(n))
	return hash
}

var errDatabase = errors.New("database unavailable")

func TestKeyIDs_UnknownKeyIsCached(t *testing.T) {
	t.Parallel()
	lookups := 0
	keys := newKeyIDs(func(context.Context, secrets.Hash) (uuid.UUID, error) {
		lookups++
		return uuid.Nil, pg.ErrNotFound
	})
	for range 3 {
		if _, err := keys.findID(t.Context(), keyHash(1)); !errors.Is(err, pg.ErrNotFound) {
			t.Errorf("get = %v, want ErrMissing", err)
		}
	}
	if lookups != 1 {
		t.Errorf("look-ups = %d, want 1", lookups)
	}
}

func TestKeyIDs_LookupErrorIsNotCached(t *testing.T) {
	t.Parallel()
	lookups := 0
	keys := newKeyIDs(func(context.Context, secrets.Hash) (uuid.UUID, error) { lookups++; return uuid.Nil, errDatabase })
	for range 3 {
		if _, err := keys.findID(t.Context(), keyHash(1)); !errors.Is(err, errDatabase) {
			t.Errorf("get = %v, want %v", err, errDatabase)
		}
	}
	if lookups != 3 {
		t.Errorf("look-ups = %d, want 3", lookups)
	}
}

func TestKeyIDs_RevokedKeyIsUnknown(t *testing.T) {
	t.Parallel()
	keys := newKeyIDs(func(context.Context, secrets.Hash) (uuid.UUID, error) { return uuid.New(), nil })
	if _, err := keys.findID(t.Context(), keyHash(1)); err != nil {
		t.Fatal(err)
	}
	keys.revoke(keyHash(1))
	if keys.isKnown(keyHash(1)) {
		t.Error("isKnown after revoke = true, want false")
	}
	if _, err := keys.findID(t.Context(), keyHash(1)); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("get after revoke = %v, want ErrMissing", err)
	}
}

func TestKeyIDs_ConcurrentRequestsOfOneKeyShareALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lookups atomic.Int32
		want := uuid.New()
		keys := newKeyIDs(func(context.Context, secrets.Hash) (uuid.UUID, error) {
			lookups.Add(1)
			time.Sleep(time.Millisecond)
			return want, nil
		})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				got, err := keys.findID(t.Context(), keyHash(1))
				if err != nil {
					t.Errorf("get: %v", err)
				}
				if got != want {
					t.Errorf("get = %v, want %v", got, want)
				}
			})
		}
		all.Wait()
		if got := lookups.Load(); got != 1 {
			t.Errorf("look-ups = %d, want 1", got)
		}
	})
}

func TestKeyIDs_FloodOfUnknownKeysEvictsNoKnownKey(t *testing.T) {
	t.Parallel()
	known := keyHash(maxEntries * 2)
	keys := newKeyIDs(func(_ context.Context, hash secrets.Hash) (uuid.UUID, error) {
		if hash == known {
			return uuid.New(), nil
		}
		return uuid.Nil, pg.ErrNotFound
	})
	if _, err := keys.findID(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	for i := range maxEntries + 10 {
		_, _ = keys.findID(t.Context(), keyHash(i))
	}
	if got := keys.unknown.Len(); got != maxEntries {
		t.Errorf("cached unknown keys = %d, want %d", got, maxEntries)
	}
	if !keys.isKnown(known) {
		t.Error("isKnown after the flood = false, want true")
	}
}

func TestKeyIDs_LimitsConcurrentLookupsOfUnknownKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lookups atomic.Int32
		known := keyHash(1000)
		keys := newKeyIDs(func(ctx context.Context, hash secrets.Hash) (uuid.UUID, error) {
			if hash == known {
				return uuid.New(), nil
			}
			lookups.Add(1)
			<-ctx.Done()
			return uuid.Nil, ctx.Err()
		})
		if _, err := keys.findID(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		var flood sync.WaitGroup
		for i := range 10 * maxUnknownLookups {
			flood.Go(func() { _, _ = keys.findID(t.Context(), keyHash(i)) })
		}
		synctest.Wait()
		if got := lookups.Load(); got != maxUnknownLookups {
			t.Errorf("concurrent look-ups = %d, want %d", got, maxUnknownLookups)
		}
		if _, err := keys.findID(t.Context(), known); err != nil {
			t.Errorf("get of a known key during the flood: %v", err)
		}
		flood.Wait()
	})
}

func TestAllow_TimesOutIfTheDatabaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authenticator := &Authenticator{limiter: ratelimit.NewLimiter(func(ctx context.Context, _ string,
			p ratelimit.Policy) (ratelimit.Status, error) {
			<-ctx.Done()
			return p.Unknown(), ctx.Err()
		})}
		begun := time.Now()
		if _, err := authenticator.allow(t.Context(), "k", 60); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("turn = %v, want %v", err, context.DeadlineExceeded)
		} else if got := time.Since(begun); got != lookupTimeout {
			t.Errorf("turn: time.Since(begun) = %v, want %v", got, lookupTimeout)
		}
	})
}

func TestClient_UsesForwardedAddressesOfTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies([]string{"10.0.0.0/8", " 192.0.2.1 ", "::1", ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"the header of an untrusted address is ignored", "203.0.113.9:1", []string{"1.1.1.1"}, "203.0.113.9"},
		{"a trusted proxy without the header counts as the client", "10.0.0.1:1", nil, "10.0.0.1"},
		{"the last address of the header is used", "10.0.0.1:1", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"two trusted proxies", "10.0.0.1:1", []string{"6.6.6.6, 203.0.113.9, 192.0.2.1"}, "203.0.113.9"},
		{"two header lines", "10.0.0.1:1", []string{"6.6.6.6", "203.0.113.9"}, "203.0.113.9"},
		{"an invalid address ends the search", "10.0.0.1:1", []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		{"only trusted proxies", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"an IPv4-mapped IPv6 address", "[::ffff:203.0.113.9]:1", nil, "203.0.113.9"},
		{"an IPv6 client is counted by its network", "[2001:db8:1:2:3:4:5:6]:1", nil, "2001:db8:1:2::/64"},
		{"an IPv6 proxy", "[::1]:1", []string{"2001:db8::1"}, "2001:db8::/64"},
	} {
		request := httptest.NewRequest("GET", "/", nil)
		request.RemoteAddr = row.peer
		request.Header["X-Forwarded-For"] = row.forwarded
		if got := proxies.Client(request); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	if _, err := ParseProxies([]string{"proxy.example"}); err == nil {
		t.Error("a name was taken for an address")
	}
}
