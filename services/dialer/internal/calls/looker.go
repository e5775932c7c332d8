package calls

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// maxLooks is how many questions to the carrier are under way at a time.
	maxLooks = 8
	// feedDelay is how long an end that the carrier knows of may take to appear in its feed.
	feedDelay = 5 * time.Second
)

// Looker asks a carrier periodically about every live call. A call whose end is missing in the feed
// then ends after that time, not after its longest time. The replica that reads the feed does it.
type Looker struct {
	store   *store.Store
	carrier carrier.EventStream
	relay   *outbox.Relay
	every   time.Duration
	ended   func()
}

// NewLooker looks at the interval every; zero: never. ended is called when calls ended.
func NewLooker(st *store.Store, trunk carrier.EventStream, relay *outbox.Relay, every time.Duration, ended func()) *Looker {
	return &Looker{store: st, carrier: trunk, relay: relay, every: every, ended: ended}
}

// Run looks until ctx ends.
func (l *Looker) Run(ctx context.Context) error {
	if l.every <= 0 {
		return nil
	}
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "carrier not asked about live calls", "error", err)
		}
	}
}

func (l *Looker) look(ctx context.Context) error {
	_, mine, err := l.store.ReadFeed(ctx, l.carrier.Name())
	if err != nil || !mine {
		return err
	}
	live, err := l.store.LiveCalls(ctx)
	if err != nil {
		return err
	}
	over := l.over(ctx, live)
	if len(over) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(feedDelay):
	}
	if err := l.keepUntold(ctx, over); err != nil || len(over) == 0 {
		return err
	}
	return l.settle(ctx, over)
}

// over returns the calls that have ended according to the carrier. The questions are spread over
// half of the interval.
func (l *Looker) over(ctx context.Context, live []uuid.UUID) map[uuid.UUID]carrier.CallStatus {
	found := map[uuid.UUID]carrier.CallStatus{}
	if len(live) == 0 {
		return found
	}
	pace := time.NewTicker(max(time.Microsecond, l.every/2/time.Duration(len(live))))
	defer pace.Stop()
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(maxLooks)
	for _, id := range live {
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
		asking.Go(func() error {
			known, err := l.carrier.Find(ctx, id)
			if err != nil || known.EndedAt == nil { // no answer, or an unknown call, does not end a call
				return nil //nolint:nilerr // the next look asks again
			}
			mu.Lock()
			defer mu.Unlock()
			found[id] = known
			return nil
		})
	}
	_ = asking.Wait()
	return found
}

// keepUntold removes the ends that the feed may still contain: unread events have more details than
// Find.
func (l *Looker) keepUntold(ctx context.Context, over map[uuid.UUID]carrier.CallStatus) error {
	place, mine, err := l.store.ReadFeed(ctx, l.carrier.Name())
	if err != nil {
		return err
	}
	unread, err := l.carrier.Events(ctx, place.Cursor, 0)
	if err != nil {
		return err
	}
	maps.DeleteFunc(over, func(_ uuid.UUID, known carrier.CallStatus) bool {
		return !mine || unread.Feed != place.Feed || len(unread.Events) > 0 && !unread.Events[0].At.After(*known.EndedAt)
	})
	return nil
}

func (l *Looker) settle(ctx context.Context, over map[uuid.UUID]carrier.CallStatus) error {
	var ended []uuid.UUID
	err := l.store.Change(ctx, slices.Collect(maps.Keys(over)), func(calls map[uuid.UUID]*callstate.Call) {
		ended = nil
		for id, c := range calls {
			if over[id].Replay(c, callstate.Zone(c.TimeZone, c.Person())) {
				ended = append(ended, id)
			}
		}
	})
	if err != nil {
		return err
	}
	if len(ended) > 0 {
		slog.WarnContext(ctx, "ends missing in the carrier's feed", "calls", len(ended), "call_id", ended[0])
		l.relay.Wake()
		l.ended()
	}
	return nil
}
