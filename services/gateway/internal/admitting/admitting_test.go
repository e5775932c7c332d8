package admitting

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/gateway/internal/quota"
	"ringfence.dev/services/gateway/internal/store"
)

func TestRemembered_IsNeverOlderThanThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var truth, asked atomic.Int32
		keys := remember(func(context.Context, string) (int32, error) { asked.Add(1); return truth.Load(), nil })
		get := func() int32 {
			value, err := keys.get(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // a renewal that get began ends here
			return value
		}
		get()
		get()
		if asked.Load() != 1 {
			t.Errorf("asked %d times, want once within a second", asked.Load())
		}
		truth.Store(1)
		time.Sleep(fresh)
		get() // old, and renews
		if got := get(); got != 1 {
			t.Errorf("after a renewal = %d, want 1", got)
		}
		truth.Store(2)
		time.Sleep(stale)
		if got := get(); got != 2 {
			t.Errorf("after %s = %d, want the truth", stale, got)
		}
		truth.Store(3)
		keys.forget("k")
		if got := get(); got != 3 {
			t.Errorf("after forget = %d, want the truth", got)
		}
	})
}

func TestRemembered_UnknownIsRememberedAFaultIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		fault := store.ErrMissing
		keys := remember(func(context.Context, string) (int, error) { asked++; return 0, fault })
		for range 3 {
			if _, err := keys.get(t.Context(), "k"); !errors.Is(err, store.ErrMissing) {
				t.Errorf("get = %v", err)
			}
		}
		if asked != 1 {
			t.Errorf("an unknown key was asked %d times, want once", asked)
		}
		asked, fault = 0, errors.New("database away")
		for range 3 {
			if _, err := keys.get(t.Context(), "other"); err == nil {
				t.Error("get = nil, want an error")
			} else if errors.Is(err, store.ErrMissing) {
				t.Errorf("get = %v, want another error", err)
			}
		}
		if asked != 3 {
			t.Errorf("a fault was remembered")
		}
	})
}

func TestRemembered_ManyWhoAskAtOnceAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		keys := remember(func(context.Context, string) (int, error) { asked.Add(1); time.Sleep(time.Millisecond); return 7, nil })
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if value, err := keys.get(t.Context(), "k"); err != nil {
					t.Errorf("get: %v", err)
				} else if value != 7 {
					t.Errorf("get: value = %v, want 7", value)
				}
			})
		}
		all.Wait()
		if asked.Load() != 1 {
			t.Errorf("asked %d times, want once", asked.Load())
		}
	})
}

func TestRemembered_IsBounded(t *testing.T) {
	t.Parallel()
	keys := remember(func(_ context.Context, key int) (int, error) { return key, store.ErrMissing })
	for i := range most + 10 {
		_, _ = keys.get(t.Context(), i)
	}
	if n := len(keys.answers); n > most {
		t.Errorf("%d answers are kept, want at most %d", n, most)
	}
}

func TestRemembered_AFloodOfStrangersLeavesRoomForTheKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var strange atomic.Int32
		keys := remember(func(ctx context.Context, key string) (int, error) {
			if key == "known" {
				return 7, nil
			}
			strange.Add(1)
			<-ctx.Done() // the database is slow for those
			return 0, ctx.Err()
		})
		if _, err := keys.get(t.Context(), "known"); err != nil {
			t.Fatal(err)
		}
		var flood sync.WaitGroup
		for i := range 10 * strangers {
			flood.Go(func() { _, _ = keys.get(t.Context(), fmt.Sprint("invented ", i)) })
		}
		time.Sleep(stale - time.Nanosecond)
		synctest.Wait()
		if strange.Load() != strangers {
			t.Errorf("%d look-ups of strangers at once, want %d", strange.Load(), strangers)
		}
		for range 2 { // stale by now: it must be asked
			if value, err := keys.get(t.Context(), "known"); err != nil {
				t.Errorf("a known key in a flood: get: %v", err)
			} else if value != 7 {
				t.Errorf("a known key in a flood: value = %v, want 7", value)
			}
			time.Sleep(stale)
		}
		flood.Wait()
	})
}

func TestRemembered_AFloodOfStrangersEvictsNobodyKnown(t *testing.T) {
	t.Parallel()
	keys := remember(func(_ context.Context, key int) (int, error) {
		if key < 0 {
			return key, nil
		}
		return 0, store.ErrMissing
	})
	_, _ = keys.get(t.Context(), -1)
	for i := range most + 10 {
		_, _ = keys.get(t.Context(), i)
	}
	if _, kept := keys.answers[-1]; !kept {
		t.Error("a known key was evicted by unknown ones")
	}
}

func TestTurn_OfADatabaseThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := &Door{turns: &turns{now: time.Now, refused: map[string]refusal{}, take: func(ctx context.Context, _ string, p quota.Policy) (quota.Standing, error) {
			<-ctx.Done()
			return p.Unknown(), ctx.Err()
		}}}
		begun := time.Now()
		if _, err := door.turn(t.Context(), "k", 60); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("turn = %v, want %v", err, context.DeadlineExceeded)
		} else if got := time.Since(begun); got != lookLimit {
			t.Errorf("turn: time.Since(begun) = %v, want %v", got, lookLimit)
		}
	})
}

func TestTurns_RefusedStaysRefusedWithoutAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		counted := &turns{now: time.Now, refused: map[string]refusal{}, take: func(_ context.Context, _ string, p quota.Policy) (quota.Standing, error) {
			asked++
			return p.Standing(asked != 1, p.Span()), nil
		}}
		first, _ := counted.next(t.Context(), "k", 60)
		second, _ := counted.next(t.Context(), "k", 60)
		if first.Allowed {
			t.Errorf("first = %+v, want it refused", first)
		}
		want := quota.Standing{Policy: 60, Reset: time.Second, RetryAfter: time.Second}
		if second != want {
			t.Errorf("second = %+v, want %+v", second, want)
		}
		if asked != 1 {
			t.Errorf("the database was asked %d times, want once", asked)
		}
		if other, _ := counted.next(t.Context(), "other", 60); !other.Allowed {
			t.Errorf("another key = %+v", other)
		}
		time.Sleep(time.Second)
		if third, _ := counted.next(t.Context(), "k", 60); !third.Allowed {
			t.Error("after Retry-After: third.Allowed = false, want true")
		} else if asked != 3 {
			t.Errorf("after Retry-After: asked = %v, want 3", asked)
		}
	})
}

func TestTurns_ANewLimitCountsAtOnce(t *testing.T) {
	t.Parallel()
	counted := &turns{now: time.Now, refused: map[string]refusal{}, take: func(_ context.Context, _ string, p quota.Policy) (quota.Standing, error) {
		return p.Standing(p > 1, p.Span()), nil
	}}
	if got, _ := counted.next(t.Context(), "k", 1); got.Allowed {
		t.Fatal("under a limit of 1: got.Allowed = true, want false")
	} else if got.RetryAfter != time.Minute {
		t.Fatalf("under a limit of 1: got.RetryAfter = %v, want %v", got.RetryAfter, time.Minute)
	}
	if got, _ := counted.next(t.Context(), "k", 100); !got.Allowed {
		t.Errorf("under the raised limit = %+v: it is refused for what the old one said", got)
	}
}

func TestClient(t *testing.T) {
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
		{"a peer that is no proxy is the client, whatever it says", "203.0.113.9:1", []string{"1.1.1.1"}, "203.0.113.9"},
		{"a proxy without the header is the client", "10.0.0.1:1", nil, "10.0.0.1"},
		{"the last hop counts, not the first", "10.0.0.1:1", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"through two proxies", "10.0.0.1:1", []string{"6.6.6.6, 203.0.113.9, 192.0.2.1"}, "203.0.113.9"},
		{"over two header lines", "10.0.0.1:1", []string{"6.6.6.6", "203.0.113.9"}, "203.0.113.9"},
		{"nonsense ends the walk", "10.0.0.1:1", []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		{"only proxies", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"a mapped address", "[::ffff:203.0.113.9]:1", nil, "203.0.113.9"},
		{"an IPv6 client is its network", "[2001:db8:1:2:3:4:5:6]:1", nil, "2001:db8:1:2::/64"},
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
