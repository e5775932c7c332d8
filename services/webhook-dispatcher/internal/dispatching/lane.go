package dispatching

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

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// A subscription starts with a small window and earns its width.
const (
	startWindow = 8
	maxWindow   = 64
	// resumeWindow is the first one after a pause or failure.
	resumeWindow = 2
	slow         = time.Second
	// memory is how long an idle subscription is remembered: longer than its longest wait for a retry.
	memory = 15 * time.Minute
	// maxLanes bounds how many are remembered; the longest idle go first.
	maxLanes = 1 << 14
	// One lane holds no more than this part of what would still be free.
	provenPart, unknownPart = 4, 8
	// The last quarter of the room is for lanes in proven health.
	reservePart = 4
	// What becomes free in small pieces is claimed together after this time.
	gatherFor = 3 * time.Millisecond
	// A claim that follows on another begins this much before where that one ended, for what was committed late or waited for an
	// earlier event of its call; and once in sweepEach at the beginning all the same.
	overlap   = 2 * time.Second
	sweepEach = time.Second
)

// lanes keeps, for each subscription this process is sending to, how many requests are open and how many may be. Every operation
// costs the same however many lanes there are.
type lanes struct {
	mu      sync.Mutex
	most    int
	perHost int
	// flying are the seats given and requests open, unknown those of lanes that are not proven.
	flying  int
	unknown int
	open    map[uuid.UUID]*lane
	hosts   map[string]*host
	idle    *list.List // lanes without seats, the longest idle first
	young   *list.List // open flights not yet slow, oldest first
	// lines are the lanes with due work that may have room, the unknown and the proven.
	lines [2]*list.List
	turn  uint64
	asked time.Time // when the last claim was
	// ready says that lanes in line have room; gathering that it will be said soon.
	ready     chan struct{}
	gathering bool
}

// lane is one subscription.
type lane struct {
	id      uuid.UUID
	url     string
	host    string
	window  int
	flying  int
	retries int
	// fresh is how many seats were taken since it last answered well.
	fresh int
	// seats are the hosts of the seats whose request has not begun.
	seats []*host
	// old is how many open requests are slow. stalled: one became slow and nothing was answered well since. proven: the last that
	// ended was a quick answer, and it is not stalled.
	old     int
	stalled bool
	proven  bool
	trouble trouble
	// waits says that older first tries are in the queue, or soon will be: no seats. refused is the turn in which a seat was last refused.
	waits   bool
	refused uint64
	// first and retry say of which kind there is due work in the queue.
	first, retry bool
	// mark is up to where first tries were claimed, by their due times, while more of them wait; zero: nobody knows. swept is when
	// they were last claimed from the very first on.
	mark, swept time.Time
	resumed     time.Time
	used        time.Time     // when it was last of use, while it rests
	resting     *list.Element // in idle
	queued      *list.Element // in the line of its kind, or in its host's
	line        *list.List
}

// host is what many subscriptions may share; it is kept while something flies to it or waits for it.
type host struct {
	name   string
	flying int
	line   *list.List // lanes with due work and room of their own
}

// flight is one open request.
type flight struct {
	lane  *lane
	host  *host
	begun time.Time
	young *list.Element
	retry bool
	held  bool // by its endpoint
}

func newLanes(most, perHost int) *lanes {
	return &lanes{
		most: most, perHost: perHost, open: map[uuid.UUID]*lane{}, hosts: map[string]*host{}, idle: list.New(), young: list.New(),
		lines: [2]*list.List{list.New(), list.New()}, ready: make(chan struct{}, 1),
	}
}

// retryShare is how much of a window retries may use, so that they never delay fresh events for long.
func retryShare(window int) int { return max(1, window/2) }

// seat reserves room for a first attempt whose row is about to be committed, already leased; false: the row waits for the claim, and
// so does every later one until a claim has found no more of them.
func (l *lanes) seat(id uuid.UUID, url string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age()
	one := l.lane(id)
	one.at(url)
	to := l.host(one.host)
	defer l.settle(one, to)
	if one.waits || l.room(one, to) < 1 {
		one.waits, one.refused = true, l.turn
		return false
	}
	l.occupy(one, to)
	return true
}

// unseat gives back a seat that came to nothing.
func (l *lanes) unseat(id uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age()
	one := l.open[id]
	l.cancel(one, "")
	l.offer(one)
}

// begin says that the request of a seat begins now. Every begin has one end.
func (l *lanes) begin(w delivery.Work) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age()
	one := l.open[w.SubscriptionID]
	one.at(w.URL)
	now := time.Now()
	f := &flight{lane: one, host: one.leave(one.host), begun: now, retry: w.Retry, held: one.held(w, now)}
	f.young = l.young.PushBack(f)
	return f
}

// end gives the room back and moves the window: up by one for a quick answer, to half for an endpoint in trouble, and towards the first
// one for an answer that came slowly.
func (l *lanes) end(f *flight, answer delivery.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.age()
	one := f.lane
	if f.young != nil {
		l.young.Remove(f.young)
	} else {
		one.old--
	}
	if f.retry {
		one.retries--
	}
	good := false
	switch {
	case troubled(answer):
		one.window = max(1, one.window/2)
	case answer.Took <= slow:
		good = true
		one.window, one.fresh = min(maxWindow, one.window+1), 0
	default:
		one.window = max(min(startWindow, one.window+1), one.window/2)
	}
	if good || one.old == 0 {
		one.stalled = false
	}
	one.judge(time.Now())
	l.prove(one, good)
	l.vacate(one, f.host)
	l.offer(one)
}

func troubled(answer delivery.Answer) bool {
	switch answer.Code {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// room is how many more requests the lane may open now. Besides its window it is bounded by a part of what is free, and, until it answers
// again, by what it takes at once: all of its window while everything is free, an eighth of that when half is taken, at last one. So
// many that hang at the same instant, each with all the work it could wish for, leave room for others long before the first of them is
// known to hang.
func (l *lanes) room(one *lane, to *host) int {
	if one.stalled {
		return 0
	}
	free, all, part := l.free(one.proven), l.most-l.most/reservePart, unknownPart
	if one.proven {
		all, part = l.most, provenPart
	}
	before := free + one.fresh
	room := min((free-part*one.flying)/(part+1), one.window*before*before*before/(all*all*all)-one.fresh)
	if one.flying == 0 {
		room = max(room, min(free, 1))
	}
	return max(0, min(room, one.window-one.flying, l.perHost-to.flying))
}

// free is what all lanes of one kind have together.
func (l *lanes) free(proven bool) int {
	if proven {
		return l.most - l.flying
	}
	return max(0, min(l.most-l.flying, l.most-l.most/reservePart-l.unknown))
}

// age finds what has become slow since it was called last.
func (l *lanes) age() {
	now := time.Now()
	for first := l.young.Front(); first != nil; first = l.young.Front() {
		f, _ := first.Value.(*flight)
		if now.Sub(f.begun) <= slow {
			break
		}
		l.young.Remove(first)
		f.young = nil
		f.lane.old++
		f.lane.stalled = true
		f.lane.judge(f.begun.Add(slow))
		l.prove(f.lane, false)
	}
	for first := l.idle.Front(); first != nil; first = l.idle.Front() {
		one, _ := first.Value.(*lane)
		if now.Sub(one.used) <= memory && l.idle.Len() <= maxLanes {
			break
		}
		l.idle.Remove(first)
		l.dequeue(one)
		delete(l.open, one.id)
	}
}

// prove moves the lane between the proven and the unknown.
func (l *lanes) prove(one *lane, proven bool) {
	if one.proven == proven {
		return
	}
	one.proven = proven
	if proven {
		l.unknown -= one.flying
	} else {
		l.unknown += one.flying
	}
	if one.line == l.lines[0] || one.line == l.lines[1] {
		l.dequeue(one)
		l.enqueue(one)
	}
}

func (l *lanes) occupy(one *lane, to *host) {
	l.flying++
	one.flying++
	one.fresh++
	to.flying++
	if !one.proven {
		l.unknown++
	}
	one.seats = append(one.seats, to)
}

// vacate gives one place back. Whoever waits for the host may have it.
func (l *lanes) vacate(one *lane, to *host) {
	l.flying--
	one.flying--
	one.fresh = min(one.fresh, one.flying)
	to.flying--
	if !one.proven {
		l.unknown--
	}
	l.follow(to)
	l.settle(one, to)
}

// follow puts who waits for the host in line, now that a place of it was given back.
func (l *lanes) follow(to *host) {
	for first := to.line.Front(); first != nil; first = to.line.Front() {
		next, _ := first.Value.(*lane)
		l.dequeue(next)
		l.enqueue(next)
		l.call(to.flying <= l.perHost-l.perHost/4)
		if to.flying > 0 { // the next place is the next one's
			break
		}
	}
}

// cancel gives back a seat whose request never began, of the host named if there is one.
func (l *lanes) cancel(one *lane, name string) {
	one.fresh = max(0, one.fresh-1)
	l.vacate(one, one.leave(name))
}

// settle keeps idle lanes in the order of their last use, and no host that nobody needs.
func (l *lanes) settle(one *lane, to *host) {
	if one.resting != nil {
		l.idle.Remove(one.resting)
		one.resting = nil
	}
	if one.flying == 0 {
		one.used, one.resting = time.Now(), l.idle.PushBack(one)
	}
	if to.flying == 0 && to.line.Len() == 0 {
		delete(l.hosts, to.name)
	}
}

// lane is what is known of a subscription. Who calls it settles it.
func (l *lanes) lane(id uuid.UUID) *lane {
	one := l.open[id]
	if one == nil {
		one = &lane{id: id, window: startWindow}
		l.open[id] = one
	}
	return one
}

func (l *lanes) host(name string) *host {
	to := l.hosts[name]
	if to == nil {
		to = &host{name: name, line: list.New()}
		l.hosts[name] = to
	}
	return to
}

// at notes where the subscription's requests go.
func (one *lane) at(url string) {
	if one.url != url || one.host == "" {
		one.url, one.host = url, hostOf(url)
	}
}

// leave takes one seat away, of the host named if there is one, and says of which host it was.
func (one *lane) leave(name string) *host {
	last := len(one.seats) - 1
	for i, to := range one.seats {
		if to.name == name {
			one.seats[i], one.seats[last] = one.seats[last], to
			break
		}
	}
	to := one.seats[last]
	one.seats = one.seats[:last]
	return to
}

// hostOf is the host and port of a url as one host writes them.
func hostOf(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return text // it will not be sent
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
