package dispatch

import (
	"container/list"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const (
	// minLimit is the initial and the lowest limit of an endpoint. It is two, so that a retry never
	// uses the only request that the endpoint may have.
	minLimit = 2
	maxLimit = 64
	// fastLimit is the limit up to which each quick response adds 1 to the limit. Above it, each
	// quick response adds 1/limit.
	fastLimit = 8
	// slowThreshold is the duration after which a request is slow.
	slowThreshold = time.Second
	// idleTimeout is the time after which an endpoint without requests is removed. It is longer
	// than the longest delay before a retry, so that an endpoint with a waiting retry keeps its
	// limit.
	idleTimeout = 15 * time.Minute
	// freeShare limits one endpoint to 1/freeShare of the requests that are still free.
	freeShare = 4
	// reserveShare reserves the last 1/reserveShare of all requests for healthy endpoints.
	reserveShare = 4
	// claimEndpoints and claimRows limit the size of one claim.
	claimEndpoints = 64
	claimRows      = 256
)

// endpointLimits decides how many deliveries a replica can claim for each endpoint, which is the
// url of one subscription.
//
// Quick responses raise the limit of an endpoint, and failures halve it (additive increase,
// multiplicative decrease). An endpoint uses at most a part of the requests that are still free,
// and some requests are reserved for healthy endpoints. So endpoints that do not respond cannot use
// all requests.
type endpointLimits struct {
	mu         sync.Mutex
	max        int
	maxPerHost int
	inFlight   int
	unhealthy  int // the number of requests in flight to endpoints that are not healthy
	endpoints  map[uuid.UUID]*endpoint
	hosts      map[string]*host
	// ready contains two lists of endpoints that have due deliveries and may send a request:
	// ready[0] has the unhealthy endpoints, and ready[1] has the healthy endpoints. Claims begin
	// alternately with ready[0] and ready[1].
	ready [2]*list.List
	round int
	// requestFreed receives a value when an endpoint with due deliveries may be able to send a
	// request.
	requestFreed chan struct{}
}

type endpoint struct {
	id   uuid.UUID
	url  string
	host string
	// requestLimit is the maximum number of requests in flight to the endpoint.
	requestLimit float64
	inFlight     int
	retries      int
	// decreasedAt is the time at which requestLimit was last halved. If a request that started
	// before this time fails, requestLimit is not halved again.
	decreasedAt time.Time
	// healthy is true if the last response was quick and the endpoint is not stalled.
	healthy bool
	// respondedAt is the time of the last response. After an idle time, it is the start time of the
	// first request.
	respondedAt  time.Time
	idleSince    time.Time
	slowdown     slowdown
	resumedAt    time.Time
	first, retry dueState
	// addedFirst and addedRetry describe the deliveries that were added after the last claim began.
	// The claim may not have read these deliveries.
	addedFirst, addedRetry dueState
	// blocked is true if the last claim returned fewer deliveries than its quota. The remaining
	// deliveries wait for an earlier event of their call, or another process has claimed them.
	blocked bool
	// listElement is the element of the endpoint in currentList, which is ready[0], ready[1], or
	// the waitingEndpoints of a host.
	listElement *list.Element
	currentList *list.List
}

// dueState describes the due deliveries of an endpoint: either the first attempts or the retries.
type dueState struct {
	due bool
	// oldestDue is not later than the due time of the oldest due delivery.
	oldestDue time.Time
}

// addDue adds a delivery with the given due time.
func (k *dueState) addDue(dueTime time.Time) {
	if !k.due || dueTime.Before(k.oldestDue) {
		k.oldestDue = dueTime
	}
	k.due = true
}

// setOldestDue stores the due time of the oldest delivery that is left after a claim. nil means
// that no delivery is due.
func (k *dueState) setOldestDue(oldest *time.Time) {
	if *k = (dueState{}); oldest != nil {
		k.addDue(*oldest)
	}
}

type host struct {
	name     string
	inFlight int
	// waitingEndpoints contains endpoints with due deliveries that wait until the host is below its
	// limit.
	waitingEndpoints *list.List
}

type request struct {
	endpoint *endpoint
	host     *host
	started  time.Time
	retry    bool
	// delayedByEndpoint is true if the endpoint itself caused the delay of the delivery
	// (slowdown.causedDelay).
	delayedByEndpoint bool
}

func newLimits(max, maxPerHost int) *endpointLimits {
	return &endpointLimits{
		max: max, maxPerHost: maxPerHost, endpoints: map[uuid.UUID]*endpoint{}, hosts: map[string]*host{},
		ready: [2]*list.List{list.New(), list.New()}, requestFreed: make(chan struct{}, 1),
	}
}

// maxRetries returns how many requests of an endpoint may be retries. The other requests are for
// first attempts, so that retries do not delay the deliveries of other calls.
func maxRetries(limit float64) int { return max(1, int(limit)/2) }

func (l *endpointLimits) addDue(due []store.Due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range due {
		e := l.endpoint(d.SubscriptionID)
		e.setURL(d.URL)
		if d.ResumedAt != nil && !d.ResumedAt.Equal(e.resumedAt) {
			e.resetLimit(*d.ResumedAt)
		}
		if d.Retry {
			e.retry.addDue(d.From)
			e.addedRetry.addDue(d.From)
		} else {
			e.first.addDue(d.From)
			e.addedFirst.addDue(d.From)
		}
		e.blocked = false
		if e.listElement != nil && e.currentList != l.ready[0] && e.currentList != l.ready[1] &&
			e.currentList != l.host(e.host).waitingEndpoints {
			l.dequeue(e) // the URL changed, so the endpoint must leave the waiting list of the previous host
		}
		l.enqueue(e)
	}
}

// resetLimit sets requestLimit to minLimit after a pause. Otherwise the endpoint would receive all
// waiting deliveries at the same time.
func (e *endpoint) resetLimit(resumedAt time.Time) {
	if time.Since(resumedAt) < idleTimeout {
		e.requestLimit = minLimit
		e.slowdown.endPause(time.Now())
	}
	e.resumedAt = resumedAt
}

// A reservation counts the deliveries of a quota as in flight, before they are claimed.
type reservation struct {
	store.Quota
	// host is the endpoint's host at the start of the claim. The endpoint's URL can change during
	// the claim.
	host *host
}

func quotasOf(reserved []reservation) []store.Quota {
	quotas := make([]store.Quota, len(reserved))
	for i, r := range reserved {
		quotas[i] = r.Quota
	}
	return quotas
}

// reserveQuotas returns the number of deliveries to claim for each endpoint, and counts them as in
// flight. The caller must pass the result to startRequests after the claim, or to cancelQuotas if
// the claim failed.
func (l *endpointLimits) reserveQuotas() (reserved []reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	left := claimRows
	for i := range 2 {
		list := l.ready[(l.round+i)%2]
		for list.Len() > 0 && len(reserved) < claimEndpoints && left > 0 {
			e, _ := list.Front().Value.(*endpoint)
			if l.freeRequests(e.healthy) == 0 {
				break
			}
			l.dequeue(e)
			to := l.host(e.host)
			total := min(l.availableRequests(e, to), left)
			retries := 0
			if e.retry.due {
				retries = min(total, max(0, maxRetries(e.requestLimit)-e.retries))
			}
			if !e.first.due {
				total = retries
			}
			if total == 0 {
				if to.inFlight >= l.maxPerHost {
					e.currentList, e.listElement = to.waitingEndpoints, to.waitingEndpoints.PushBack(e)
				}
				l.removeUnused(to)
				continue // the endpoint is queued again when one of its requests ends
			}
			l.takeSlots(e, to, total)
			e.addedFirst, e.addedRetry = dueState{}, dueState{}
			left -= total
			quota := store.Quota{
				SubscriptionID: e.id, Total: total, Retries: retries, FirstFrom: e.first.oldestDue, RetryFrom: e.retry.oldestDue,
			}
			reserved = append(reserved, reservation{Quota: quota, host: to})
		}
	}
	return reserved
}

// cancelQuotas removes the reservation of a failed claim.
func (l *endpointLimits) cancelQuotas(reserved []reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, quota := range reserved {
		e := l.endpoints[quota.SubscriptionID]
		l.freeSlots(e, quota.host, quota.Total)
		l.enqueue(e)
	}
}

// startRequests replaces the reservation of a claim by the claimed deliveries. requests[i] is the
// request for work[i]. If the URL of a subscription changed after the reservation and the new host
// is at its limit, its deliveries are in toRelease. The caller must release them.
func (l *endpointLimits) startRequests(reserved []reservation,
	claimed store.Claimed) (requests []*request, work, toRelease []deliveries.Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	remaining := make(map[uuid.UUID]store.Remaining, len(claimed.Remaining))
	for _, r := range claimed.Remaining {
		remaining[r.SubscriptionID] = r
	}
	taken := make(map[uuid.UUID]int, len(reserved))
	for _, w := range claimed.Work {
		taken[w.SubscriptionID]++
	}
	for _, quota := range reserved {
		e := l.endpoints[quota.SubscriptionID]
		l.freeSlots(e, quota.host, quota.Total)
		e.first.setOldestDue(remaining[e.id].First)
		e.retry.setOldestDue(remaining[e.id].Retry)
		e.blocked = taken[e.id] < quota.Total
		if e.addedFirst.due {
			e.first.addDue(e.addedFirst.oldestDue)
			e.blocked = false
		}
		if e.addedRetry.due {
			e.retry.addDue(e.addedRetry.oldestDue)
			e.blocked = false
		}
	}
	for _, w := range claimed.Work {
		e := l.endpoints[w.SubscriptionID]
		e.setURL(w.URL)
		to := l.host(e.host)
		if to.inFlight >= l.maxPerHost {
			toRelease = append(toRelease, w)
			if w.Retry {
				e.retry.addDue(w.DueAt)
			} else {
				e.first.addDue(w.DueAt)
			}
			continue
		}
		l.takeSlots(e, to, 1)
		if w.Retry {
			e.retries++
		}
		now := time.Now()
		requests = append(requests, &request{
			endpoint: e, host: to, started: now, retry: w.Retry,
			delayedByEndpoint: e.slowdown.causedDelay(w.CreatedAt, now.Add(-w.Age), now),
		})
		work = append(work, w)
	}
	for _, quota := range reserved {
		e := l.endpoints[quota.SubscriptionID]
		l.enqueue(e)
		l.removeUnused(l.host(e.host))
	}
	return requests, work, toRelease
}

// endRequest counts a request as ended and adapts the limit of its endpoint to the response.
func (l *endpointLimits) endRequest(r *request, response deliveries.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, now := r.endpoint, time.Now()
	if response.Failure.Internal() {
		l.release(r)
		return
	}
	e.respondedAt = now
	quick := false
	switch {
	case isCongested(response):
		if r.started.After(e.decreasedAt) {
			e.requestLimit, e.decreasedAt = max(minLimit, e.requestLimit/2), now
		}
	case response.Duration <= slowThreshold:
		quick = true
		e.requestLimit = min(maxLimit, e.requestLimit+limitIncrease(e.requestLimit))
	}
	e.slowdown.update(!quick, now)
	l.setHealthy(e, quick)
	l.release(r)
}

func (l *endpointLimits) release(r *request) {
	if r.retry {
		r.endpoint.retries--
	}
	l.freeSlots(r.endpoint, r.host, 1)
	l.enqueue(r.endpoint)
}

// limitIncrease returns the amount by which a quick response raises a limit.
func limitIncrease(limit float64) float64 {
	if limit < fastLimit {
		return 1
	}
	return 1 / limit
}

// isCongested reports whether the endpoint did not respond, or responded that it is overloaded.
func isCongested(response deliveries.Response) bool {
	switch response.Code {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// wakeBlocked queues the given endpoints again. Their blocked deliveries may be claimable now,
// because the result of an earlier event of the call was stored.
func (l *endpointLimits) wakeBlocked(ids []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if e := l.endpoints[id]; e != nil {
			e.blocked = false
			l.enqueue(e)
		}
	}
}

// refreshEndpoints marks stalled endpoints as unhealthy, queues endpoints with due deliveries, and
// removes idle endpoints. The dispatcher calls it once in each poll interval.
func (l *endpointLimits) refreshEndpoints() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for id, e := range l.endpoints {
		switch {
		case l.isStalled(e, now):
			l.setHealthy(e, false)
			e.slowdown.update(true, e.respondedAt.Add(slowThreshold))
		case e.first.due || e.retry.due:
			e.blocked = false
			// The host offered its last free request to an endpoint that now has another url. Therefore this
			// endpoint still waits, although the host is below its limit.
			if to := l.hosts[e.host]; to != nil && e.currentList == to.waitingEndpoints && to.inFlight < l.maxPerHost {
				l.dequeue(e)
			}
			l.enqueue(e)
		case e.inFlight == 0 && now.Sub(e.idleSince) > idleTimeout:
			delete(l.endpoints, id)
		}
	}
}

// dueQuotas returns at most limit endpoints with due deliveries, for Store.CountBacklog.
func (l *endpointLimits) dueQuotas(limit int) (due []store.Quota) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.endpoints {
		if (e.first.due || e.retry.due) && len(due) < limit {
			due = append(due, store.Quota{SubscriptionID: e.id, FirstFrom: e.first.oldestDue, RetryFrom: e.retry.oldestDue})
		}
	}
	return due
}

// isStalled reports whether the endpoint has requests in flight and has not responded for
// slowThreshold.
func (l *endpointLimits) isStalled(e *endpoint, now time.Time) bool {
	return e.inFlight > 0 && now.Sub(e.respondedAt) > slowThreshold
}

// availableRequests returns the number of further requests that the endpoint can have now.
func (l *endpointLimits) availableRequests(e *endpoint, to *host) int {
	if l.isStalled(e, time.Now()) {
		l.setHealthy(e, false)
		return 0
	}
	free := l.freeRequests(e.healthy)
	// n is the largest number for which inFlight + n <= (free - n) / freeShare
	n := (free - freeShare*e.inFlight) / (freeShare + 1)
	if e.inFlight == 0 {
		n = max(n, min(free, 1))
	}
	return max(0, min(n, int(e.requestLimit)-e.inFlight, l.maxPerHost-to.inFlight))
}

// freeRequests returns how many further requests all healthy endpoints together can have. If
// healthy is false, it returns this number for all unhealthy endpoints.
func (l *endpointLimits) freeRequests(healthy bool) int {
	free := l.max - l.inFlight
	if !healthy {
		free = min(free, l.max-l.max/reserveShare-l.unhealthy)
	}
	return max(0, free)
}

func (l *endpointLimits) setHealthy(e *endpoint, healthy bool) {
	if e.healthy == healthy {
		return
	}
	e.healthy = healthy
	if healthy {
		l.unhealthy -= e.inFlight
	} else {
		l.unhealthy += e.inFlight
	}
	if e.currentList == l.ready[0] || e.currentList == l.ready[1] {
		l.dequeue(e)
		l.enqueue(e)
	}
}

func (l *endpointLimits) takeSlots(e *endpoint, to *host, n int) {
	if e.inFlight == 0 {
		e.respondedAt = time.Now()
	}
	l.inFlight += n
	e.inFlight += n
	to.inFlight += n
	if !e.healthy {
		l.unhealthy += n
	}
}

// freeSlots counts n requests as ended. For each of them, it queues one endpoint that waits for the
// host.
func (l *endpointLimits) freeSlots(e *endpoint, to *host, n int) {
	l.inFlight -= n
	e.inFlight -= n
	to.inFlight -= n
	if !e.healthy {
		l.unhealthy -= n
	}
	if e.inFlight == 0 {
		e.idleSince = time.Now()
	}
	for range n {
		first := to.waitingEndpoints.Front()
		if first == nil {
			break
		}
		next, _ := first.Value.(*endpoint)
		l.dequeue(next)
		l.enqueue(next)
	}
	if l.ready[0].Len()+l.ready[1].Len() > 0 {
		l.signal()
	}
	l.removeUnused(to)
}

// enqueue appends an endpoint with due deliveries to ready[1] if it is healthy, and to ready[0]
// otherwise. It does nothing if the endpoint is already in a list or is blocked.
func (l *endpointLimits) enqueue(e *endpoint) {
	if e.listElement != nil || e.blocked || !e.first.due && !e.retry.due {
		return
	}
	e.currentList = l.ready[0]
	if e.healthy {
		e.currentList = l.ready[1]
	}
	e.listElement = e.currentList.PushBack(e)
	l.signal()
}

func (l *endpointLimits) dequeue(e *endpoint) {
	if e.listElement != nil {
		e.currentList.Remove(e.listElement)
		e.listElement, e.currentList = nil, nil
	}
}

func (l *endpointLimits) signal() {
	select {
	case l.requestFreed <- struct{}{}:
	default:
	}
}

func (l *endpointLimits) endpoint(id uuid.UUID) *endpoint {
	e := l.endpoints[id]
	if e == nil {
		e = &endpoint{id: id, requestLimit: minLimit, idleSince: time.Now()}
		l.endpoints[id] = e
	}
	return e
}

func (l *endpointLimits) host(name string) *host {
	to := l.hosts[name]
	if to == nil {
		to = &host{name: name, waitingEndpoints: list.New()}
		l.hosts[name] = to
	}
	return to
}

func (l *endpointLimits) removeUnused(to *host) {
	if to.inFlight == 0 && to.waitingEndpoints.Len() == 0 {
		delete(l.hosts, to.name)
	}
}

func (e *endpoint) setURL(url string) {
	if e.url != url || e.host == "" {
		e.url, e.host = url, hostOf(url)
	}
}

// hostOf returns the host and port of a url in a canonical form.
func hostOf(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return text // sending to this invalid url fails later
	}
	name, port := strings.TrimSuffix(strings.ToLower(parsed.Hostname()), "."), 443
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	}
	if n, err := strconv.ParseUint(parsed.Port(), 10, 16); err == nil {
		port = int(n)
	}
	return name + ":" + strconv.Itoa(port)
}
