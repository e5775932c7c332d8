package dispatch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

var (
	quick   = deliveries.Response{Code: 200}
	timeout = deliveries.Response{Failure: deliveries.Timeout, Duration: 10 * time.Second}
)

// customer is a subscription with due deliveries.
type customer struct {
	l              *endpointLimits
	id             uuid.UUID
	url            string
	first, retries int // the numbers of due first attempts and due retries
	inFlight       []*request
}

func newCustomer(l *endpointLimits, first, retries int) *customer {
	id := uuid.New()
	return &customer{l: l, id: id, url: "https://" + id.String() + ".example/", first: first, retries: retries}
}

func poll(customers ...*customer) {
	for _, c := range customers {
		var due []store.Due
		if c.first > 0 {
			due = append(due, store.Due{SubscriptionID: c.id, URL: c.url})
		}
		if c.retries > 0 {
			due = append(due, store.Due{SubscriptionID: c.id, URL: c.url, Retry: true})
		}
		c.l.addDue(due)
	}
}

func claim(l *endpointLimits, customers ...*customer) {
	byID := map[uuid.UUID]*customer{}
	for _, c := range customers {
		byID[c.id] = c
	}
	for quotas := l.reserveQuotas(); len(quotas) > 0; quotas = l.reserveQuotas() {
		var claimed store.Claimed
		for _, quota := range quotas {
			c := byID[quota.SubscriptionID]
			first := min(c.first, quota.Total)
			retries := min(c.retries, quota.Retries, quota.Total-first)
			c.first, c.retries = c.first-first, c.retries-retries
			for i := range first + retries {
				w := deliveries.Work{SubscriptionID: c.id, URL: c.url, Retry: i >= first, CreatedAt: time.Now()}
				claimed.Work = append(claimed.Work, w)
			}
			left := store.Remaining{SubscriptionID: c.id}
			if c.first > 0 {
				left.First = &time.Time{}
			}
			if c.retries > 0 {
				left.Retry = &time.Time{}
			}
			claimed.Remaining = append(claimed.Remaining, left)
		}
		requests, work, back := l.startRequests(quotas, claimed)
		for i, w := range work {
			c := byID[w.SubscriptionID]
			c.inFlight = append(c.inFlight, requests[i])
		}
		for _, w := range back {
			if c := byID[w.SubscriptionID]; w.Retry {
				c.retries++
			} else {
				c.first++
			}
		}
	}
}

func (c *customer) end(n int, response deliveries.Response) {
	for _, r := range c.inFlight[:n] {
		c.l.endRequest(r, response)
	}
	c.inFlight = c.inFlight[n:]
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func check(t *testing.T, l *endpointLimits, customers ...*customer) {
	t.Helper()
	all, unhealthy, hosts := 0, 0, map[string]int{}
	for _, c := range customers {
		retries := 0
		for _, r := range c.inFlight {
			hosts[r.host.name]++
			if r.retry {
				retries++
			}
		}
		all += len(c.inFlight)
		e := l.endpoint(c.id)
		wantEqual(t, "requests of an endpoint", e.inFlight, len(c.inFlight))
		wantEqual(t, "retries of an endpoint", e.retries, retries)
		if !e.healthy {
			unhealthy += len(c.inFlight)
		}
	}
	wantEqual(t, "requests of the process", l.inFlight, all)
	wantEqual(t, "requests of unhealthy endpoints", l.unhealthy, unhealthy)
	if all > l.max {
		t.Errorf("requests of the process = %d, want at most %d", all, l.max)
	}
	for name, n := range hosts {
		if n > l.maxPerHost {
			t.Errorf("requests to %s = %d, want at most %d", name, n, l.maxPerHost)
		}
	}
	for name, host := range l.hosts {
		wantEqual(t, "counted requests to "+name, host.inFlight, hosts[name])
	}
}

func TestLimits_GrowWithQuickResponsesAndAreHalvedByFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(10_000, 10_000)
		c := newCustomer(l, 1_000_000, 0)
		poll(c)
		claim(l, c)
		wantEqual(t, "requests of an unknown endpoint", len(c.inFlight), minLimit)
		for range 6 {
			c.end(1, quick)
			claim(l, c)
		}
		wantEqual(t, "requests after six quick responses", len(c.inFlight), fastLimit)
		for range 5000 {
			c.end(1, quick)
			claim(l, c)
		}
		wantEqual(t, "requests after many quick responses", len(c.inFlight), maxLimit)

		time.Sleep(time.Millisecond)
		c.end(5, timeout) // all five requests were in flight before the first of them failed
		wantEqual(t, "limit after one set of failures", int(l.endpoint(c.id).requestLimit), maxLimit/2)
		c.end(len(c.inFlight), timeout)
		for range 20 {
			claim(l, c)
			time.Sleep(time.Millisecond)
			c.end(len(c.inFlight), timeout)
		}
		claim(l, c)
		wantEqual(t, "requests of an endpoint that always fails", len(c.inFlight), minLimit)
		check(t, l, c)
	})
}

func TestLimits_ASlowResponseDoesNotRaiseTheLimit(t *testing.T) {
	t.Parallel()
	l := newLimits(100, 100)
	c := newCustomer(l, 100, 0)
	poll(c)
	claim(l, c)
	c.end(2, deliveries.Response{Code: 200, Duration: 2 * slowThreshold})
	claim(l, c)
	wantEqual(t, "requests after slow responses", len(c.inFlight), minLimit)
	c.end(2, deliveries.Response{Code: 500})
	wantEqual(t, "limit after a quick 500", int(l.endpoint(c.id).requestLimit), minLimit+2)
}

func TestLimits_AStalledEndpointGetsNoRequestUntilItResponds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(100, 100)
		c := newCustomer(l, 100, 0)
		poll(c)
		claim(l, c)
		for range 6 {
			c.end(1, quick)
			claim(l, c)
		}
		inFlight := len(c.inFlight)
		time.Sleep(2 * slowThreshold)
		l.refreshEndpoints()
		wantEqual(t, "a stalled endpoint is healthy", l.endpoint(c.id).healthy, false)
		claim(l, c)
		wantEqual(t, "requests of a stalled endpoint", len(c.inFlight), inFlight)
		c.end(1, quick)
		claim(l, c)
		if len(c.inFlight) < inFlight {
			t.Errorf("requests after a response = %d, want at least %d", len(c.inFlight), inFlight)
		}
		check(t, l, c)
	})
}

// Many endpoints do not respond. An endpoint that has responded before must still get a request
// immediately. An endpoint that has never responded must get a request if 150 other endpoints
// hang, but not if 1000 hang.
func TestLimits_HangingEndpointsDoNotUseAllRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		hanging     int
		wantUnknown bool
	}{
		{hanging: 1, wantUnknown: true},
		{hanging: 20, wantUnknown: true},
		{hanging: 150, wantUnknown: true},
		{hanging: 1000, wantUnknown: false},
	} {
		t.Run(fmt.Sprint(tt.hanging), func(t *testing.T) {
			t.Parallel()
			l := newLimits(512, 128)
			known, unknown := newCustomer(l, 1, 0), newCustomer(l, 10, 0)
			poll(known)
			claim(l, known)
			known.end(1, quick)
			all := []*customer{known, unknown}
			for range tt.hanging {
				all = append(all, newCustomer(l, 1000, 0))
			}
			poll(all[2:]...)
			claim(l, all...)
			known.first = 10
			poll(known, unknown)
			claim(l, all...)
			if len(known.inFlight) == 0 {
				t.Error("requests of the endpoint that has responded before = 0, want some")
			}
			wantEqual(t, "an endpoint without history has requests", len(unknown.inFlight) > 0, tt.wantUnknown)
			check(t, l, all...)
		})
	}
}

func TestLimits_SubscriptionsOfOneHostShareItsLimit(t *testing.T) {
	t.Parallel()
	l := newLimits(512, 5)
	all := make([]*customer, 10)
	for i := range all {
		all[i] = newCustomer(l, 3, 0)
		all[i].url = "https://Hooks.example:443/" + fmt.Sprint(i)
	}
	other := newCustomer(l, 3, 0)
	poll(append(all, other)...)
	sent := 0
	for range 100 {
		claim(l, append(all, other)...)
		check(t, l, append(all, other)...)
		for _, c := range all {
			sent += len(c.inFlight)
			c.end(len(c.inFlight), quick)
		}
	}
	wantEqual(t, "requests to the shared host", sent, 30)
	wantEqual(t, "requests of the endpoint on another host", len(other.inFlight), minLimit)
}

func TestLimits_DeliveryIsReleasedIfItsNewURLIsOnAFullHost(t *testing.T) {
	t.Parallel()
	l := newLimits(512, 1)
	full, moved := newCustomer(l, 1, 0), newCustomer(l, 1, 0)
	poll(full)
	claim(l, full)
	poll(moved)
	quotas := l.reserveQuotas()
	if len(quotas) != 1 {
		t.Fatalf("quotas = %d, want 1", len(quotas))
	}
	work := []deliveries.Work{{SubscriptionID: moved.id, URL: full.url}} // a PATCH changed the url before the claim
	requests, _, back := l.startRequests(quotas, store.Claimed{Work: work})
	wantEqual(t, "requests", len(requests), 0)
	wantEqual(t, "released deliveries", len(back), 1)
	moved.url = full.url
	full.end(1, quick)
	claim(l, moved)
	wantEqual(t, "requests after the host may have more", len(moved.inFlight), 1)
	check(t, l, full, moved)
}

func TestLimits_RetriesNeverUseAllRequestsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	l := newLimits(512, 128)
	c := newCustomer(l, 0, 100)
	poll(c)
	claim(l, c)
	wantEqual(t, "retries of an unknown endpoint", len(c.inFlight), 1)
	c.first = 10
	poll(c)
	claim(l, c)
	wantEqual(t, "requests with a first attempt", len(c.inFlight), minLimit)
	check(t, l, c)
}

func TestLimits_AFailedClaimIsRepeated(t *testing.T) {
	t.Parallel()
	l := newLimits(512, 128)
	c := newCustomer(l, 10, 0)
	poll(c)
	l.cancelQuotas(l.reserveQuotas())
	check(t, l, c)
	claim(l, c)
	wantEqual(t, "requests", len(c.inFlight), minLimit)
}

// A PATCH changes the url during a claim. The end of the claim must remove the reservation from the
// previous host.
func TestLimits_URLChangeDuringAClaimFreesTheReservation(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*endpointLimits, []reservation){
		"the claim takes nothing": func(l *endpointLimits, reserved []reservation) {
			l.startRequests(reserved, store.Claimed{})
		},
		"the claim fails": (*endpointLimits).cancelQuotas,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLimits(512, 128)
			c := newCustomer(l, 10, 0)
			poll(c)
			reserved := l.reserveQuotas()
			if len(reserved) != 1 {
				t.Fatalf("quotas = %d, want 1", len(reserved))
			}
			c.url = "https://other.example/"
			poll(c)
			end(l, reserved)
			check(t, l, c)
			claim(l, c)
			check(t, l, c)
			wantEqual(t, "requests to the other host", len(c.inFlight), minLimit)
		})
	}
}

func TestLimits_BlockedDeliveriesAreClaimedAfterAResult(t *testing.T) {
	t.Parallel()
	l := newLimits(512, 128)
	c := newCustomer(l, 2, 0)
	poll(c)
	quotas := l.reserveQuotas()
	work := []deliveries.Work{{SubscriptionID: c.id, URL: c.url}}
	left := []store.Remaining{{SubscriptionID: c.id, First: &time.Time{}}}
	requests, _, _ := l.startRequests(quotas, store.Claimed{Work: work, Remaining: left})
	l.endRequest(requests[0], quick)
	wantEqual(t, "quotas after the response", len(l.reserveQuotas()), 0)
	l.wakeBlocked([]uuid.UUID{c.id, uuid.New()})
	wantEqual(t, "quotas after the result", len(l.reserveQuotas()), 1)
}

// The running claim does not read a delivery that is committed during the claim. The next claim
// must read this delivery.
func TestLimits_ADeliveryThatIsAddedDuringAClaimIsClaimedNext(t *testing.T) {
	t.Parallel()
	l := newLimits(512, 128)
	c := newCustomer(l, 1, 0)
	poll(c)
	quotas := l.reserveQuotas()
	poll(c)
	l.startRequests(quotas, store.Claimed{})
	wantEqual(t, "quotas of the next claim", len(l.reserveQuotas()), 1)
}

func TestLimits_AResumedEndpointStartsWithTheMinimumLimit(t *testing.T) {
	t.Parallel()
	l := newLimits(512, 128)
	c := newCustomer(l, 1000, 0)
	poll(c)
	for range 50 {
		claim(l, c)
		c.end(1, quick)
	}
	resumed := time.Now()
	due := []store.Due{{SubscriptionID: c.id, URL: c.url, ResumedAt: &resumed}}
	l.addDue(due)
	wantEqual(t, "limit after the resumption", int(l.endpoint(c.id).requestLimit), minLimit)
	c.end(1, quick)
	l.addDue(due) // the next poll returns the resumed subscription again
	wantEqual(t, "limit after one quick response", int(l.endpoint(c.id).requestLimit), minLimit+1)
}

func TestLimits_RemovesIdleEndpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(512, 128)
		idle, busy, waiting := newCustomer(l, 1, 0), newCustomer(l, 1, 0), newCustomer(l, 0, 0)
		poll(idle, busy)
		claim(l, idle, busy)
		idle.end(1, quick)
		waiting.first = 1
		poll(waiting)
		time.Sleep(idleTimeout + time.Second)
		l.refreshEndpoints()
		wantEqual(t, "an idle endpoint is kept", l.endpoints[idle.id] != nil, false)
		wantEqual(t, "an endpoint with a request is kept", l.endpoints[busy.id] != nil, true)
		wantEqual(t, "an endpoint with due deliveries is kept", l.endpoints[waiting.id] != nil, true)
		wantEqual(t, "kept hosts", len(l.hosts), 1)
	})
}

// sendAll lets all requests succeed and returns the number of deliveries that are left.
func sendAll(l *endpointLimits, all ...*customer) (left int) {
	for range 5000 {
		left = 0
		for _, c := range all {
			c.end(len(c.inFlight), quick)
			left += c.first + c.retries
		}
		if left == 0 {
			return 0
		}
		poll(all...)
		l.refreshEndpoints()
		claim(l, all...)
	}
	return left
}

// After random operations, the counters must equal the requests in flight. All deliveries must be
// sent if every endpoint responds.
func TestLimits_CountersEqualTheRequestsAfterRandomOperations(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			l := newLimits(1+r.IntN(60), 1+r.IntN(8))
			all := make([]*customer, 1+r.IntN(8))
			for i := range all {
				all[i] = newCustomer(l, r.IntN(50), r.IntN(50))
			}
			for range 300 {
				c := all[r.IntN(len(all))]
				switch r.IntN(7) {
				case 0:
					c.first += r.IntN(20)
				case 1:
					c.retries += r.IntN(20)
				case 2:
					c.url = fmt.Sprintf("https://%d.example/", r.IntN(4))
				case 3:
					time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
					l.refreshEndpoints()
				case 4:
					answers := []deliveries.Response{quick, timeout, {Code: 503}, {Code: 404}, {Failure: deliveries.Interrupted}}
					c.end(r.IntN(len(c.inFlight)+1), answers[r.IntN(len(answers))])
				case 5:
					poll(all...)
					if r.IntN(10) == 0 {
						l.cancelQuotas(l.reserveQuotas())
					}
					claim(l, all...)
				case 6:
					poll(all...)
					reserved := l.reserveQuotas()
					c.url = fmt.Sprintf("https://%d.example/", r.IntN(4))
					poll(c)
					l.cancelQuotas(reserved)
				}
				if check(t, l, all...); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if left := sendAll(l, all...); left > 0 {
				t.Fatalf("seed %d: deliveries that are left = %d, want 0", seed, left)
			}
			check(t, l, all...)
		})
	}
}
