package dispatching

import (
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// A subscription starts with a small window and earns its width: one that hangs never gets more than a few of the
// requests this process may have open.
const (
	startWindow = 8
	maxWindow   = 64
	slow        = time.Second
	// memory is how long an idle endpoint in trouble keeps its narrow window: longer than its longest wait for a retry.
	memory = 15 * time.Minute
)

// lanes keeps, for each subscription this process is sending to, how many requests are open and how many may be.
type lanes struct {
	mu   sync.Mutex
	free int
	open map[uuid.UUID]*lane
}

type lane struct {
	window  int
	flying  int
	retries int
	// used is when its last request ended.
	used time.Time
}

func newLanes(most int) *lanes { return &lanes{free: most, open: map[uuid.UUID]*lane{}} }

// retryShare is how much of a window retries may use, so that they never delay fresh events for long.
func retryShare(window int) int { return max(1, window/2) }

// room is what may be claimed: in all, and of each subscription that is not in its first state.
func (l *lanes) room() (free int, rooms []store.Room) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, one := range l.open {
		if one.flying == 0 && time.Since(one.used) > memory {
			delete(l.open, id)
			continue
		}
		total := max(0, one.window-one.flying)
		rooms = append(rooms, store.Room{
			SubscriptionID: id, Total: total, Retries: min(total, max(0, retryShare(one.window)-one.retries)),
		})
	}
	return l.free, rooms
}

func (l *lanes) take(w delivery.Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.open[w.SubscriptionID]
	if one == nil {
		one = &lane{window: startWindow}
		l.open[w.SubscriptionID] = one
	}
	l.free--
	one.flying++
	if w.Retry {
		one.retries++
	}
}

// seat reserves room for a first attempt whose row is about to be committed, already leased; false: the row waits for the claim.
func (l *lanes) seat(id uuid.UUID, _ string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.open[id]
	if one == nil {
		one = &lane{window: startWindow}
		l.open[id] = one
	}
	if l.free <= 0 || one.flying >= one.window {
		return false
	}
	l.free--
	one.flying++
	return true
}

// unseat gives back a seat that came to nothing.
func (l *lanes) unseat(id uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	one := l.open[id]
	one.flying--
	if one.flying == 0 && one.window >= startWindow {
		delete(l.open, id)
	}
}

// done gives the room back and moves the window: up by one for a quick answer, to half for an endpoint in trouble.
func (l *lanes) done(w delivery.Work, answer delivery.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	one := l.open[w.SubscriptionID]
	one.flying--
	one.used = time.Now()
	if w.Retry {
		one.retries--
	}
	if troubled(answer) {
		one.window = max(1, one.window/2)
	} else {
		one.window = min(maxWindow, one.window+1)
	}
	if one.flying == 0 && one.window >= startWindow {
		delete(l.open, w.SubscriptionID) // forget idle endpoints in good health: the map stays small
	}
}

func troubled(answer delivery.Answer) bool {
	switch answer.Code {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return answer.Took > slow
	}
}
